"""A database as a suite must know it: tables, keys, foreign keys, and how their names stand in SQL. Pure."""

from __future__ import annotations

import contextlib
import json
import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import yaml
from pglast.keywords import COL_NAME_KEYWORDS, RESERVED_KEYWORDS, TYPE_FUNC_NAME_KEYWORDS

from redteam_forker.names import quote_ident

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Column", "ForeignKey", "Schema", "Table", "comment", "ident", "literal", "scalar"]

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_WIDTH = 100
_KEYWORDS = frozenset((*COL_NAME_KEYWORDS, *RESERVED_KEYWORDS, *TYPE_FUNC_NAME_KEYWORDS))


def ident(name: str) -> str:
    """A name as SQL wants it, in quotes only where it needs them."""
    return name if _PLAIN.fullmatch(name) and name not in _KEYWORDS else quote_ident(name)


def literal(text: str) -> str:
    """A string constant of SQL, on one line of a file."""
    escaped = text.replace("'", "''")
    return f"E'{escaped.replace(chr(92), chr(92) * 2)}'" if "\\" in text else f"'{escaped}'"


def scalar(text: str, *, flow: bool = False) -> str:
    """A text of one line as YAML: as it is where YAML reads it so, else in quotes; `flow` within brackets."""
    quoted = "'" + text.replace("'", "''") + "'"
    for option in (text, quoted):
        with contextlib.suppress(yaml.YAMLError):
            if yaml.safe_load(f"[{option}]" if flow else f"k: {option}") == ([text] if flow else {"k": text}):
                return option
    return json.dumps(text, ensure_ascii=False)


def comment(text: str, *, indent: str = "") -> list[str]:
    """A text as lines of comments in YAML."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ", break_on_hyphens=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column.

    Attributes:
        type: as the catalog formats it, with its modifier.
        base: without the modifier, and of a domain what it is over.
        always: it is an identity that takes no value of others by itself.
        required: it is NOT NULL, and neither a default nor an identity fills it.
        labels: of an enum, in order.
        common: its most common values as text, where statistics have some.
        distinct: how many values there are; negative is a share of the rows, -1 is unique (as in pg_stats).
        empty: share of NULL.
        length: the most characters of a text; None has no bound.
    """

    name: str
    type: str
    base: str
    not_null: bool = False
    always: bool = False
    required: bool = False
    generated: bool = False
    default: str | None = None
    labels: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    distinct: float = 0.0
    empty: float = 0.0
    length: int | None = None

    @property
    def is_text(self) -> bool:
        """Whether a text that a person says fits it."""
        return self.base in ("text", "character varying", "character", "citext", "name")

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole numbers."""
        return self.base in ("smallint", "integer", "bigint")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKey:
    """Columns that point at another table; `declared` is false for one that only the names suggest."""

    columns: tuple[str, ...]
    target: int
    target_columns: tuple[str, ...]
    declared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, or a partitioned one; never a partition.

    Attributes:
        key: the primary key, else the smallest unique one without NULL; empty where rows cannot be named.
        unique: every unique key.
        rows: about how many.
        visible: whether its name alone finds it.
        guarded: row-level security is on.
    """

    oid: int
    schema: str
    name: str
    columns: tuple[Column, ...] = ()
    key: tuple[str, ...] = ()
    unique: tuple[tuple[str, ...], ...] = ()
    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[str, ...] = ()
    rows: int = 0
    visible: bool = True
    guarded: bool = False

    @property
    def sql(self) -> str:
        """Its name in SQL."""
        bare = self.visible and self.schema == "public"
        return ident(self.name) if bare else f"{ident(self.schema)}.{ident(self.name)}"

    @property
    def rule_name(self) -> str:
        """Its name in rules and policies, as the catalog spells it."""
        return self.name if self.schema == "public" else f"{self.schema}.{self.name}"

    def column(self, name: str) -> Column:
        """A column by its name."""
        return next(column for column in self.columns if column.name == name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """All tables by oid."""

    tables: Mapping[int, Table] = field(repr=False)

    def referring(self, oid: int) -> Sequence[tuple[Table, ForeignKey]]:
        """Every foreign key that points at a table, with the table that has it."""
        return [
            (table, key) for table in self.tables.values() for key in table.foreign_keys if key.target == oid
        ]
