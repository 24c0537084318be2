"""Scripts as psql gets them: the seed's text with its edits, each of which keeps lines in their places."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redteam_forker.names import quote_ident
from redteam_forker.seeds.rewrites import HERE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from redteam_forker.seeds.script import SeedFile
    from redteam_forker.seeds.statements import Piece

__all__ = ["Edit", "ExtensionUse", "Script", "blank"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """Another text for one stretch of a script.

    Attributes:
        start: offset of its first character.
        end: offset after its last one.
        text: what stands there instead.
    """

    start: int
    end: int
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionUse:
    """A statement that creates an extension, or comments on it.

    Attributes:
        name: the extension's.
        schema: where it is to be created, if that is said.
        place: `file:line`.
        edit: takes the statement out.
        comment: whether it is the comment.
    """

    name: str
    place: str
    edit: Edit
    schema: str | None = None
    comment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file as it is given to psql.

    Attributes:
        file: the file.
        text: its text.
        pieces: what is in it, for mapping an error's line to a statement's.
        edits: of statements that are not run as they stand.
        optional: edits that take out a setting, for servers that do not know it; by its name.
        extensions: statements that are edited where the server lacks the extension.
    """

    file: SeedFile
    text: str = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)
    edits: tuple[Edit, ...] = field(repr=False, default=())
    optional: tuple[tuple[str, Edit], ...] = field(repr=False, default=())
    extensions: tuple[ExtensionUse, ...] = field(repr=False, default=())

    @property
    def name(self) -> str:
        """The file's name."""
        return self.file.name

    @property
    def data(self) -> bytes:
        """What psql gets on a server that lacks nothing."""
        return self.render()

    def render(
        self,
        database: str = "template",
        *,
        unknown_settings: Collection[str] = (),
        extensions: Mapping[str, str | None] | None = None,
    ) -> bytes:
        """What psql gets.

        Args:
            database: the one that it is loaded into.
            unknown_settings: settings that the server does not have.
            extensions: extensions that it does not have, with the SQL on one line that stands in for each, if
                any; `{schema}` in it becomes the schema with a dot, or nothing.
        """
        edits = list(self.edits)
        edits += [edit for name, edit in self.optional if name in unknown_settings]
        for use in self.extensions:
            if extensions is None or use.name not in extensions:
                continue
            sql = extensions[use.name]
            if sql is None or use.comment:
                edits.append(use.edit)
            else:
                schema = f'"{use.schema.replace(chr(34), chr(34) * 2)}".' if use.schema else ""
                edits.append(
                    Edit(start=use.edit.start, end=use.edit.end, text=sql.replace("{schema}", schema))
                )
        parts, at = [], 0
        for edit in sorted(edits, key=lambda edit: edit.start):
            lines = self.text.count("\n", edit.start, edit.end) - edit.text.count("\n")
            parts += [
                self.text[at : edit.start],
                edit.text.replace(HERE, quote_ident(database)),
                "\n" * lines,
            ]
            at = edit.end
        parts.append(self.text[at:])
        return "".join(parts).encode()


def blank(text: str, piece: Piece) -> Edit:
    """Take a piece out, and leave its lines."""
    return Edit(start=piece.start, end=piece.end, text=re.sub(r"[^\n]", " ", text[piece.start : piece.end]))
