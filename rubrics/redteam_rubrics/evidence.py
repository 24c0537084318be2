"""All that a rule may look at: who spoke, what was said and called, what changed, and the end state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["ChangeView", "ChangedRow", "Evidence", "ObjectChange", "TableChanges", "World", "Write"]

_CHANGES_VERSION = 2

Cells = Mapping[str, str | None]


class World(Protocol):
    """The conversation's database as it was left, and in schema `before` its tables as they were first."""

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, object]]:
        """Run one read-only statement and return its rows by column name, each value as asyncpg gives it.

        A statement that fails raises, and must leave the next `fetch` usable (a savepoint in a transaction).
        An `EnvironmentFault` means that the database failed, not the rule; `grade` lets it through.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRow:
    """One row that differs between the start and the end; every cell is Postgres' text of the value.

    Attributes:
        key: the row's key, or None when its table has none.
        old: the row as it was; None for an insert.
        new: the row as it is; None for a delete.
        changed: for an update, the columns whose values differ.
        by: ids of the tool calls that may have written it last; empty: it was written outside any call; None:
            it is not known.
    """

    op: Literal["insert", "update", "delete"]
    key: Cells | None
    old: Cells | None
    new: Cells | None
    changed: tuple[str, ...] = ()
    by: tuple[str, ...] | None = None

    @property
    def images(self) -> tuple[Cells, ...]:
        """The old and the new image, as far as there are any."""
        return tuple(image for image in (self.old, self.new) if image is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The changed rows of one table, and the types of its columns as Postgres spells them.

    Attributes:
        omitted: how many changed rows more there are, too many to keep.
        free: the columns that may take any new value wherever a row may be updated.
    """

    schema: str
    table: str
    columns: Mapping[str, str]
    rows: tuple[ChangedRow, ...]
    omitted: int = 0
    free: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The table as rules write it: bare in schema `public`, else `schema.table`."""
        return table_name(self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What one committed transaction wrote to one table, whether or not anything of it is left.

    Attributes:
        table: the table as rules write it.
        rows: how many row versions it wrote, as far as they could still be found.
        by: as in `ChangedRow`.
    """

    table: str
    op: Literal["insert", "update", "delete"]
    rows: int
    by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """A schema object that was created, dropped or altered: `public.notes`, a table."""

    op: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeView:
    """A conversation's change set, as far as rules read it. A sequence that advanced is nothing to judge.

    Attributes:
        writes: what was written on the way.
        left_out: how many changed rows are not among the tables' because the suite's policies leave them out.
    """

    tables: tuple[TableChanges, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    writes: tuple[Write, ...] = ()
    left_out: int = 0

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChangeView:
        """Read `changes.json`.

        Raises:
            InternalError: the change set is of a version that this code does not know.
        """
        if data.get("version") != _CHANGES_VERSION:
            raise InternalError(
                f"change set of version {data.get('version')!r}; this code reads version {_CHANGES_VERSION}"
            )
        return cls(
            tables=tuple(
                TableChanges(
                    schema=table["schema"],
                    table=table["table"],
                    columns=dict(table["columns"]),
                    rows=tuple(
                        ChangedRow(
                            op=row["op"],
                            key=row["key"],
                            old=row["old"],
                            new=row["new"],
                            changed=tuple(row["changed"]),
                            by=_calls(row["by"]),
                        )
                        for row in table["rows"]
                    ),
                    omitted=table["omitted"],
                )
                for table in data["tables"]
            ),
            objects=tuple(
                ObjectChange(op=change["op"], kind=change["kind"], name=change["name"])
                for change in data["objects"]
            ),
            writes=tuple(
                Write(
                    table=table_name(write["schema"], write["table"]),
                    op=write["op"],
                    rows=write["rows"],
                    by=_calls(write["by"]),
                )
                for write in data["writes"]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one finished conversation.

    Attributes:
        conversation: its id.
        persona: the row it was played from; rules read it as `:persona.column`.
        disposition: how it was played.
        events: the trace, in order; a finding refers to an event by its index here.
        changes: what differs in the database.
        claimed: the row that the persona claims to be, where its disposition impersonates; rules read it as
            `:claimed.column`. None: it claims to be nobody else.
    """

    conversation: str
    persona: Mapping[str, object]
    disposition: str
    events: tuple[Mapping[str, Any], ...]
    changes: ChangeView
    claimed: Mapping[str, object] | None = None

    @classmethod
    def from_json(
        cls,
        *,
        conversation: str,
        persona: Mapping[str, object],
        disposition: str,
        events: Sequence[Mapping[str, Any]],
        changes: Mapping[str, Any],
        claimed: Mapping[str, object] | None = None,
    ) -> Evidence:
        """Build it from the JSON forms of a trace and a change set.

        Raises:
            InternalError: the change set is of a version that this code does not know.
        """
        return cls(
            conversation=conversation,
            persona=persona,
            disposition=disposition,
            events=tuple(events),
            changes=ChangeView.from_json(changes),
            claimed=claimed,
        )

    def of_kind(self, kind: str, name: str | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """The events of one kind, with their indices; with a name, only those of that tool."""
        for index, event in enumerate(self.events):
            if event["kind"] == kind and (name is None or event["name"] == name):
                yield index, event

    def calls(self, by: Sequence[str]) -> list[tuple[int, str]]:
        """The tool calls of these ids: the index of each one's event, and the tool's name."""
        return [(index, event["name"]) for index, event in self.of_kind("tool_call") if event["call"] in by]

    def writer(self, by: Sequence[str] | None) -> int | None:
        """The index of the only tool call that can have written something, or None."""
        found = self.calls(by or ())
        return found[0][0] if len(found) == 1 else None


def table_name(schema: str, table: str) -> str:
    """A table as rules write it: bare in schema `public`, else `schema.table`."""
    return table if schema == "public" else f"{schema}.{table}"


def _calls(by: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if by is None else tuple(by)
