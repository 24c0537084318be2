"""Reads a seed's statements before any runs: refuses what leaves the database, says what the rest needs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pglast import ast, enums, parse_sql
from pglast.parser import ParseError, parse_sql_json

from redteam_forker.errors import SeedError
from redteam_forker.seeds.bodies import dynamic_of, inside, roles_of
from redteam_forker.seeds.content import CUT_OFF, is_whole
from redteam_forker.seeds.refusals import refused_command, refused_statement
from redteam_forker.seeds.rewrites import (
    Aside,
    Membership,
    connected_name,
    is_a,
    made_databases,
    memberships_of,
    optional_setting,
    rewrite,
)
from redteam_forker.seeds.scripts import Edit, ExtensionUse, Script, blank
from redteam_forker.seeds.statements import Piece, ScriptError, split_script

if TYPE_CHECKING:
    from redteam_forker.seeds.script import Seed, SeedFile

__all__ = ["Lint", "Script", "lint"]

_SHOWN = 8
# Most of a dump is rows. Nothing in such a statement is of interest but calls, and the tables of pg_cron.
_ROWS = re.compile(r"(?:insert|update|delete|values|select|merge)\b", re.IGNORECASE)
_SUSPECT = re.compile(r"\b(?:dblink|lo_|pg_|http|aws_)\w*\"?\s*\(|\b(?:cron|net)\"?\s*\.", re.IGNORECASE)
_VARIABLE = re.compile(r"(?<![:\w]):(?:'(\w+)'|\"(\w+)\"|(\w+))")
_STOP = re.compile(r"\\(?:un)?set\s+ON_ERROR_STOP\b")
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"[^\"]*\"|\$(\w*)\$.*?\$\1\$", re.DOTALL)
_ROLE_DDL = re.compile(r"\b(?:create|alter)\s+(?:role|user|group)\b", re.IGNORECASE)
_RIGHT = re.compile(r"\b(?:superuser|createrole|createdb|replication|bypassrls)\b", re.IGNORECASE)
# What may stand before a \connect: whatever else did would have gone into another database.
_BEFORE_CONNECT = (
    ast.VariableSetStmt | ast.SelectStmt | ast.DoStmt | ast.AlterRoleSetStmt | ast.AlterDatabaseSetStmt
)

# Not run, but the roles in them are made. Those that are only dropped, or own the dump's database, are not.
_MAKES_ROLES = ast.CreateRoleStmt | ast.AlterRoleStmt | ast.AlterRoleSetStmt | ast.GrantRoleStmt


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """A seed that may be loaded.

    Attributes:
        roles: role names that it refers to or creates, sorted; those that are missing must be made, without
            login, before the seed is loaded. PUBLIC, CURRENT_USER and Postgres' own pg_* are not among them.
        set_aside: `file:line: CREATE ROLE name` for each statement that is not run.
        stripped_owners: the same for those about ownership, when owners are stripped.
        memberships: of roles in roles; they are given when the seed is loaded, as far as they may be.
        extensions: the CREATE EXTENSION statements.
        scripts: the files as they are loaded.
    """

    roles: tuple[str, ...]
    set_aside: tuple[str, ...]
    stripped_owners: tuple[str, ...] = ()
    memberships: tuple[Membership, ...] = ()
    extensions: tuple[ExtensionUse, ...] = ()
    scripts: tuple[Script, ...] = field(repr=False)


@lru_cache(maxsize=4)
def lint(seed: Seed) -> Lint:
    """Check every statement of a seed; nothing is run. Takes about 0.3 s for 500 kB of statements.

    Raises:
        SeedError: with file, line, reason and the way out of each refusal (the first eight).
    """
    checks = [_Check(file, seed) for file in seed.files]
    made: set[str] = set()
    for check in checks:
        made |= check.split()
    for check in checks:
        check.run(made)
    refused = [refusal for check in checks for refusal in check.refused]
    if refused:
        more = f"\n... and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise SeedError("\n".join(refused[:_SHOWN]) + more)
    return Lint(
        roles=tuple(sorted({role for check in checks for role in check.roles})),
        set_aside=tuple(line for check in checks for line in check.set_aside),
        stripped_owners=tuple(line for check in checks for line in check.stripped),
        memberships=tuple(each for check in checks for each in check.memberships),
        extensions=tuple(each for check in checks for each in check.extensions),
        scripts=tuple(check.script() for check in checks),
    )


class _Check:
    """One file's refusals, needs and edits."""

    def __init__(self, file: SeedFile, seed: Seed) -> None:
        self._file = file
        self._seed = seed
        self._text = file.text
        self._pieces: list[Piece] = []
        self._edits: list[Edit] = []
        self._optional: list[tuple[str, Edit]] = []
        self._own: str | None = None
        self._made: set[str] = set()
        self._public = True
        self._elsewhere: str | None = None
        self._fetched = False
        self.refused: list[str] = []
        self.roles: set[str] = set()
        self.set_aside: list[str] = []
        self.stripped: list[str] = []
        self.memberships: list[Membership] = []
        self.extensions: list[ExtensionUse] = []

    def split(self) -> set[str]:
        """Cut the script; returns the names of the databases that it makes."""
        try:
            self._pieces = split_script(self._text)
        except ScriptError as error:
            self._refuse(error.line, str(error))
        else:
            if not is_whole(self._text):
                self._refuse(self._text.count("\n") + 1, CUT_OFF)
        return made_databases(self._pieces)

    def run(self, made: set[str]) -> None:
        self._made = made
        self._own = next(iter(made)) if len(made) == 1 else None
        commands = {piece.meta for piece in self._pieces}
        variables = bool(commands & {"set", "gset"})
        self._fetched = "gset" in commands
        for piece in self._pieces:
            if piece.meta is not None:
                self._command(piece)
            else:
                self._statement(piece, variables=variables)

    def script(self) -> Script:
        return Script(
            file=self._file,
            text=self._text,
            pieces=tuple(self._pieces),
            edits=tuple(self._edits),
            optional=tuple(self._optional),
            extensions=tuple(self.extensions),
        )

    def _refuse(self, line: int, reason: str) -> None:
        note = f" ({self._file.note})" if self._file.note else ""
        self.refused.append(f"{self._file.place(line)}: {reason}{note}")

    def _command(self, piece: Piece) -> None:
        if piece.meta in ("c", "connect") and self._own is not None and connected_name(piece) == self._own:
            if self._elsewhere:
                self._refuse(
                    piece.line,
                    f"\\{piece.meta} {self._own}: what stands before it, from {self._elsewhere} on, "
                    "was for another database; split the file there, and list what belongs to the seed",
                )
            self.set_aside.append(f"{self._file.place(piece.line)}: \\{piece.meta} {self._own}")
            # A new session has no settings of the old one's.
            self._edits.append(Edit(start=piece.start, end=piece.end, text="DISCARD ALL;"))
            return
        if piece.meta == "encoding" and len(piece.text.split()) > 1:
            self._edits.append(blank(self._text, piece))
            return
        if _STOP.match(piece.text):  # at the first error: that is not the script's to say
            self._edits.append(blank(self._text, piece))
            return
        reason = refused_command(piece.meta or "", piece.text)
        if reason:
            self._refuse(piece.line, reason + self._several())

    def _several(self) -> str:
        """A dump of several databases cannot be a seed: which of them is it?"""
        if len(self._made) < 2:
            return ""
        names = ", ".join(sorted(self._made))
        return f" (the seed makes {len(self._made)} databases: {names}; pg_dump one of them)"

    def _statement(self, piece: Piece, *, variables: bool) -> None:
        sql = _VARIABLE.sub(_stand_in, piece.text) if variables else piece.text
        if self._fetched and (bare := _bare(piece.text)):
            self._refuse(
                piece.line,
                f"{bare} may be any SQL that a query gave to \\gset; write :'name' or :\"name\", or the text",
            )
        try:
            if (rows := _ROWS.match(sql)) and not _SUSPECT.search(sql):
                parse_sql_json(sql)  # the grammar only, several times cheaper than a tree
                if rows.group().lower() not in ("select", "values"):
                    self._elsewhere = self._elsewhere or self._file.place(piece.line)
                return
            statements = [raw.stmt for raw in parse_sql(sql)]
        except ParseError as error:
            self._refuse(piece.line + _newlines_before(sql, error), f"{error.args[0]}; {_unparsed(sql)}")
            return
        for statement in statements:
            self._judge(statement, sql, piece)

    def _judge(self, statement: Any, sql: str, piece: Piece) -> None:
        place = self._file.place(piece.line)
        aside = rewrite(
            statement,
            piece.text,
            own=self._own,
            strip_owners=self._seed.owners == "strip",
            leave_subscriptions="subscription" in self._seed.allow,
            public=self._public,
        )
        if aside is None:
            reason = refused_statement(statement, sql, self._seed.allow)
            if reason:
                self._refuse(piece.line, reason + (self._several() if "DATABASE" in reason else ""))
                return
        if aside is None or isinstance(statement, _MAKES_ROLES):
            self.roles |= roles_of(statement)
        if aside is None and not isinstance(statement, _BEFORE_CONNECT):
            self._elsewhere = self._elsewhere or place
        self.memberships += memberships_of(statement, place)
        if aside is not None:
            self._set_aside(aside, piece, place)
            return
        self._note(statement, piece, place)
        self._look_inside(statement, sql, piece)

    def _set_aside(self, aside: Aside, piece: Piece, place: str) -> None:
        if aside.label:
            (self.stripped if aside.owner else self.set_aside).append(f"{place}: {aside.label}")
        if aside.instead is None:
            self._edits.append(blank(self._text, piece))
        else:
            self._edits.append(Edit(start=piece.start, end=piece.start + len(piece.text), text=aside.instead))

    def _note(self, statement: Any, piece: Piece, place: str) -> None:
        """Remember what the load decides on: it knows the server."""
        if setting := optional_setting(statement):
            self._optional.append((setting, blank(self._text, piece)))
        elif is_a(statement, ast.CreateExtensionStmt):
            schema = next(
                (each.arg.sval for each in statement.options or () if each.defname == "schema"), None
            )
            self.extensions.append(
                ExtensionUse(
                    name=statement.extname, schema=schema, place=place, edit=blank(self._text, piece)
                )
            )
        elif is_a(statement, ast.CommentStmt) and statement.objtype == enums.ObjectType.OBJECT_EXTENSION:
            name = statement.object.sval
            self.extensions.append(
                ExtensionUse(name=name, place=place, edit=blank(self._text, piece), comment=True)
            )
        elif is_a(statement, ast.DropStmt) and statement.removeType == enums.ObjectType.OBJECT_SCHEMA:
            self._public &= all(each.sval != "public" for each in statement.objects)

    def _look_inside(self, statement: Any, sql: str, piece: Piece) -> None:
        for inner, inner_sql in inside(statement, sql):
            reason = refused_statement(inner, inner_sql, self._seed.allow)
            if reason:
                self._refuse(piece.line, f"in the body that begins here: {reason}")
            elif isinstance(statement, ast.DoStmt):
                self.roles |= roles_of(inner)
        for expression in dynamic_of(statement, sql):
            if _ROLE_DDL.search(expression) and (right := _RIGHT.search(expression)):
                self._refuse(
                    piece.line,
                    f"in the body that begins here: EXECUTE makes a role {right.group().upper()}, which can "
                    "step out of its database; remove that: seeds need roles only as owners and grantees",
                )


def _stand_in(match: re.Match[str]) -> str:
    """Something of the same place in the grammar for a psql variable, whose value is not known."""
    literal, quoted, bare = match.groups()
    return f"'{literal}'" if literal else f'"{quoted or bare}"'


def _bare(sql: str) -> str | None:
    """The first psql variable in a statement whose value is put in as it is."""
    for match in _VARIABLE.finditer(_QUOTED.sub("", sql)):
        if match.group(3) and not match.group(3).isdigit():
            return match.group()
    return None


def _newlines_before(sql: str, error: ParseError) -> int:
    location = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], int) else 0
    return sql.count("\n", 0, max(location, 0))


def _unparsed(sql: str) -> str:
    placeholder = re.search(r"@\w+|\{\{.*?\}\}|\$\{\w+\}", sql)
    if placeholder:
        return f"fill in the placeholder {placeholder.group()} first"
    return "mend the SQL; it must parse as PostgreSQL 18's"
