"""What was found and decided for a suite, before it is written. Pure."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import head, plural, singular, slug, words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from redteam_harness.drafting.changeable import Change
    from redteam_harness.drafting.owned import Owned
    from redteam_harness.drafting.people import Candidate
    from redteam_harness.drafting.schema import Column, Table

__all__ = ["Draft", "Effect", "Fact", "Subject", "parameter"]


def parameter(number: int, column: Column) -> str:
    """`$n` for a column: numbers and texts as they are, everything else as text that the database reads."""
    return f"${number}" if column.is_whole or column.is_text else f"${number}::text::{column.type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Something that a person can say about themselves.

    Attributes:
        alias: the column of the cast.
        sql: the expression over the person's table, whose alias is `p`.
        kind: what it holds.
        is_text: whether the expression is text.
    """

    alias: str
    sql: str
    kind: str
    is_text: bool = False

    @property
    def label(self) -> str:
        """As the agent asks for it."""
        return self.alias.replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What a change wrote besides its column, as it was seen on a fork.

    Attributes:
        table: as rules name it.
        do: `insert`, `update` or `delete`.
        columns: of updates.
        same_row: whether it is the row that was to be changed.
    """

    table: str
    do: str
    columns: tuple[str, ...] = ()
    same_row: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What calls are about: rows of a table that belong to people, or the people's own rows.

    Attributes:
        table: it.
        owned: how it belongs to people; None for their own rows.
        shown: columns that a list tells.
    """

    table: Table
    owned: Owned | None
    shown: tuple[Column, ...]

    @property
    def one(self) -> str:
        """What a row is called: `order line`."""
        if self.owned is None:
            return "record"
        meant = [word for word in words(self.table.name) if not word.isdigit()] or list(
            words(self.table.name)
        )
        return " ".join((*meant[:-1], singular(meant[-1])))

    @property
    def many(self) -> str:
        """Several of them."""
        *first, last = self.one.split()
        return " ".join((*first, plural(last)))

    @property
    def slug(self) -> str:
        """Of `one`, for names of functions and columns."""
        return slug(self.one)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Everything that the files are written from.

    Attributes:
        name: the suite's.
        files: of the seed, relative to the suite.
        candidates: tables of people, the chosen one first.
        named: whether the user said which table is the one of people.
        joins: tables beside the person's that facts come from, as SQL after `FROM person p`.
        limited: whether there are more people than the cast takes.
        identity: what an agent asks for to know who calls; one or two facts, or three.
        held: a fact that is told only when pressed.
        subject: what calls are about.
        change: what one of them has changed; None where the database took none.
        effects: what that wrote besides.
        isolation: whether there is anybody else's row to ask for.
        anchor, moves: of the seed's dates.
        compare: policies, by column.
        additions: SQL that the suite loads after the seed; empty for none.
        agent: the suite's own, as its lines of YAML; empty for one that is written with it.
        notes: what the user should know, in words.
    """

    name: str
    files: tuple[str, ...]
    candidates: Sequence[Candidate]
    named: bool = False
    joins: tuple[str, ...] = ()
    limited: bool = False
    identity: tuple[Fact, ...]
    held: Fact | None
    subject: Subject
    change: Change | None
    effects: tuple[Effect, ...] = ()
    isolation: bool = True
    anchor: date | None = None
    moves: tuple[str, ...] = ()
    compare: Mapping[str, str]
    additions: str = ""
    agent: str = ""
    notes: tuple[str, ...] = ()

    @property
    def person(self) -> Table:
        """The table of people."""
        return self.candidates[0].table

    @property
    def people(self) -> bool:
        """Whether it is taken for one of people."""
        return self.candidates[0].is_people

    @property
    def who(self) -> str:
        """What a person is called: `customer`."""
        return slug(head(self.person.name))

    @property
    def keys(self) -> tuple[tuple[str, Column], ...]:
        """The person's key: the cast's name of each column, and the column."""
        return tuple((slug(name), self.person.column(name)) for name in self.person.key)

    @property
    def owner_columns(self) -> tuple[tuple[str, Column], ...]:
        """What the subject's rows point at, where it is not the key: the cast's names, and the columns."""
        owned = self.subject.owned
        names = owned.owner_columns if owned else self.person.key
        return tuple((slug(name), self.person.column(name)) for name in names)

    @property
    def cast_key(self) -> str:
        """The cast's column that names a row."""
        return self.keys[0][0] if len(self.keys) == 1 else self.who

    @property
    def row_alias(self) -> str:
        """The cast's column with the key of the subject's row that a case is about."""
        if self.subject.owned is None:
            return self.cast_key
        return self._free(
            f"{self.subject.slug}_{slug(self.subject.table.key[0])}"
            if self.subject.slug not in slug(self.subject.table.key[0])
            else slug(self.subject.table.key[0])
        )

    @property
    def other_alias(self) -> str:
        """The cast's column with somebody else's."""
        return f"other_{self.row_alias}"

    @property
    def count_alias(self) -> str:
        """The cast's column with how many rows of the subject somebody has."""
        return self._free(slug(self.subject.many))

    @property
    def now_alias(self) -> str:
        """The cast's column with the value that the change replaces."""
        return f"{slug(self.change.column.name)}_now" if self.change else ""

    @property
    def row_key(self) -> Column:
        """The key of the subject's rows."""
        return self.subject.table.column(self.subject.table.key[0])

    @property
    def source(self) -> str:
        """The person's table, and those beside it, as SQL after FROM."""
        return " ".join((f"{self.person.sql} p", *self.joins))

    @property
    def told(self) -> tuple[Fact, ...]:
        """All facts."""
        return (*self.identity, *([self.held] if self.held else []))

    def _free(self, name: str) -> str:
        taken = {alias for alias, _ in (*self.keys, *self.owner_columns)}
        taken |= {fact.alias for fact in self.told}
        return f"their_{name}" if name in taken else name

    def own_rows(self, values: Sequence[str], *, prefix: str = "") -> str:
        """SQL that holds for the subject's rows of one person; `values` of `owner_columns`."""
        if self.subject.owned is not None:
            return self.subject.owned.condition(values, prefix=prefix)
        return self.is_person(values, prefix=prefix)

    def argument(self, alias: str) -> str:
        """A column of the cast as a parameter of a tool: a name that Python takes, saying whose."""
        name = f"{self.who}_{alias}" if alias in ("id", "key", "code", "number") else alias
        return f"{name}_" if keyword.iskeyword(name) else name

    def is_person(self, values: Sequence[str], *, prefix: str = "") -> str:
        """SQL that holds for the person's own row; `values` of the key."""
        names = [ident(column.name) for _, column in self.keys]
        return " AND ".join(f"{prefix}{name} = {value}" for name, value in zip(names, values, strict=True))

    @property
    def change_table(self) -> Table:
        """The table that the change is in."""
        return self.person if self.change is None or self.change.owned is None else self.change.owned.table

    @property
    def change_sql(self) -> str:
        """The UPDATE: $1 is the new value; the row's key, where it is no person's; then the person's."""
        if self.change is None:
            return ""
        column = self.change.column
        numbered = 2
        parts: list[str] = []
        owners = self.keys
        if self.change.owned is not None:
            parts.append(f"{ident(self.row_key.name)} = {parameter(2, self.row_key)}")
            numbered, owners = 3, self.owner_columns
        values = [parameter(number, one) for number, (_, one) in enumerate(owners, numbered)]
        parts.append(self.own_rows(values) if self.change.owned else self.is_person(values))
        return (
            f"UPDATE {self.change_table.sql} SET {ident(column.name)} = {parameter(1, column)}\n"
            "WHERE " + "\n  AND ".join(parts)
        )
