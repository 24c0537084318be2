"""What differs between a fork and its baseline, as values, and their JSON form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "VERSION",
    "ChangeSet",
    "Method",
    "ObjectChange",
    "RowChange",
    "SequenceChange",
    "TableChanges",
    "Write",
]

VERSION = 2

Method = Literal["pages", "xmin", "keys", "multiset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row that was inserted, updated or deleted.

    Attributes:
        op: what happened to it, seen from both ends: a row that was inserted and deleted again is no change.
        key: the key's cells; None in a table without a key.
        old: the whole row as the baseline has it; None for an insert.
        new: the whole row as the fork has it; None for a delete.
        changed: columns whose values differ, in the table's order; for an update only.
        xid: the 64-bit id of the transaction that wrote the new image, or that deleted the row; None where it
            is not known.
        by: ids of the tool calls that may have written it last: one, or several that ran at the same time.
            Empty: it was written outside any call. None: not known, or nobody has asked yet (`attributed`).
    """

    op: Literal["insert", "update", "delete"]
    key: Mapping[str, str] | None
    old: Mapping[str, str | None] | None
    new: Mapping[str, str | None] | None
    changed: tuple[str, ...] = ()
    xid: int | None = None
    by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The rows of one table that differ; a partitioned table is one table.

    Attributes:
        schema: its schema.
        table: its name in the fork (in the baseline, if it was dropped).
        key: the columns that rows were matched by; None: rows were compared as a multiset.
        columns: type of each column, in the table's order.
        method: how the rows were found: `pages` read the pages that the fork changed, `xmin` all rows that it
            wrote, `keys` and `multiset` every row of both sides, matched by key or by hash.
        reason: why a quicker method would not do; None with `pages`.
        rows: in the order of their keys.
        omitted: how many changed rows more there are, left out because they were too many to keep.
    """

    schema: str
    table: str
    key: tuple[str, ...] | None
    columns: Mapping[str, str]
    method: Method
    reason: str | None
    rows: tuple[RowChange, ...]
    omitted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """What one committed transaction wrote to one table, also where nothing of it is left to see.

    Attributes:
        xid: its 64-bit id.
        op: what it did to the rows.
        rows: how many row versions that did to, as far as they can still be found.
        by: as in `RowChange`.
    """

    xid: int
    schema: str
    table: str
    op: Literal["insert", "update", "delete"]
    rows: int
    by: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceChange:
    """A sequence that moved, also when the transaction that moved it was rolled back (P64).

    Attributes:
        old: the last value that was given out; None: none was yet, or there was no such sequence.
        new: the same in the fork. `next N` when none was given out but N was set to be.
    """

    schema: str
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectChange:
    """A schema object that was made, removed or altered; `old` and `new` describe it as SQL would.

    What belongs to a table that was itself made or removed is not listed again.
    """

    op: Literal["create", "drop", "alter"]
    kind: str
    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """Everything that differs. Tables, sequences and objects without a difference are not in it.

    Attributes:
        tables: by schema and name.
        sequences: by schema and name.
        objects: by kind and name.
        writes: what was written on the way, by transaction; a row that was put back is in no table, and its
            writes are here. As far as it can be known: `docs/changes.md` says what is not seen.
    """

    tables: tuple[TableChanges, ...] = ()
    sequences: tuple[SequenceChange, ...] = ()
    objects: tuple[ObjectChange, ...] = ()
    writes: tuple[Write, ...] = ()

    @property
    def hash(self) -> str:
        """Hexadecimal SHA-256 of what differs, whoever wrote it and however it was found.

        Two forks of one template that ended alike have the same hash.
        """
        body = self._body()
        del body["writes"]
        for table in body["tables"]:
            del table["method"], table["reason"]
            for row in table["rows"]:
                del row["xid"], row["by"]
        return _sha256(body)

    @property
    def digest(self) -> str:
        """Hexadecimal SHA-256 of all of it: what a stored change set is checked by."""
        return _sha256(self._body())

    def _body(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "tables": [
                {
                    "schema": table.schema,
                    "table": table.table,
                    "key": None if table.key is None else list(table.key),
                    "columns": dict(table.columns),
                    "method": table.method,
                    "reason": table.reason,
                    "rows": [
                        {
                            "op": row.op,
                            "key": None if row.key is None else dict(row.key),
                            "old": None if row.old is None else dict(row.old),
                            "new": None if row.new is None else dict(row.new),
                            "changed": list(row.changed),
                            "xid": row.xid,
                            "by": None if row.by is None else list(row.by),
                        }
                        for row in table.rows
                    ],
                    "omitted": table.omitted,
                }
                for table in self.tables
            ],
            "sequences": [
                {"schema": item.schema, "name": item.name, "old": item.old, "new": item.new}
                for item in self.sequences
            ],
            "objects": [
                {"op": item.op, "kind": item.kind, "name": item.name, "old": item.old, "new": item.new}
                for item in self.objects
            ],
            "writes": [
                {
                    "xid": item.xid,
                    "schema": item.schema,
                    "table": item.table,
                    "op": item.op,
                    "rows": item.rows,
                    "by": None if item.by is None else list(item.by),
                }
                for item in self.writes
            ],
        }

    def to_json(self) -> dict[str, Any]:
        """The form that is stored as `changes.json` and that rubrics read; `docs/changes.md` describes it."""
        return {**self._body(), "hash": self.hash, "digest": self.digest}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChangeSet:
        """Read that form back.

        Raises:
            UsageError: it is of another version, or its digest is not that of its content.
        """
        if data.get("version") != VERSION:
            raise UsageError(
                f"a change set of version {data.get('version')!r}, where this program reads {VERSION}; "
                "run the conversation again"
            )
        changes = cls(
            tables=tuple(
                TableChanges(
                    **{
                        name: table[name]
                        for name in ("schema", "table", "columns", "method", "reason", "omitted")
                    },
                    key=None if table["key"] is None else tuple(table["key"]),
                    rows=tuple(
                        RowChange(**{**row, "changed": tuple(row["changed"]), "by": _calls(row["by"])})
                        for row in table["rows"]
                    ),
                )
                for table in data["tables"]
            ),
            sequences=tuple(SequenceChange(**item) for item in data["sequences"]),
            objects=tuple(ObjectChange(**item) for item in data["objects"]),
            writes=tuple(Write(**{**item, "by": _calls(item["by"])}) for item in data["writes"]),
        )
        if data.get("digest") != changes.digest:
            raise UsageError("the change set's digest is not that of its content: the file was cut or edited")
        return changes


def _calls(by: list[str] | None) -> tuple[str, ...] | None:
    return None if by is None else tuple(by)


def _sha256(body: Any) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
