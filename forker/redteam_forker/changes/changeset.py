"""What differs between a fork and its baseline, as values, and their JSON form."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["VERSION", "ChangeSet", "ObjectChange", "RowChange", "SequenceChange", "TableChanges"]

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChange:
    """One row that was inserted, updated or deleted.

    Attributes:
        op: what happened to it, seen from both ends: a row that was inserted and deleted again is no change.
        key: the key's cells; None in a table without a key.
        old: the whole row as the baseline has it; None for an insert.
        new: the whole row as the fork has it; None for a delete.
        changed: columns whose values differ, in the table's order; for an update only.
        xid: the 64-bit id of the transaction that wrote the new image; None for a delete.
    """

    op: Literal["insert", "update", "delete"]
    key: Mapping[str, str] | None
    old: Mapping[str, str | None] | None
    new: Mapping[str, str | None] | None
    changed: tuple[str, ...] = ()
    xid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChanges:
    """The rows of one table that differ; a partitioned table is one table.

    Attributes:
        schema: its schema.
        table: its name in the fork (in the baseline, if it was dropped).
        key: the columns that rows were matched by; None: rows were compared as a multiset.
        columns: type of each column, in the table's order.
        method: `xmin` when only rows written since the fork began were read, `full` when all were.
        reason: why all rows were read; None with `xmin`.
        rows: in the order of their keys.
    """

    schema: str
    table: str
    key: tuple[str, ...] | None
    columns: Mapping[str, str]
    method: Literal["xmin", "full"]
    reason: str | None
    rows: tuple[RowChange, ...]


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
    """Everything that differs. Tables, sequences and objects without a difference are not in it."""

    tables: tuple[TableChanges, ...] = ()
    sequences: tuple[SequenceChange, ...] = ()
    objects: tuple[ObjectChange, ...] = ()

    @property
    def hash(self) -> str:
        """Hexadecimal SHA-256 of the canonical JSON of all else."""
        text = json.dumps(self._body(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

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
                        }
                        for row in table.rows
                    ],
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
        }

    def to_json(self) -> dict[str, Any]:
        """The form that is stored as `changes.json` and that rubrics read; `docs/changes.md` describes it."""
        return {**self._body(), "hash": self.hash}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ChangeSet:
        """Read that form back.

        Raises:
            UsageError: it is of another version, or its hash is not that of its content.
        """
        if data.get("version") != VERSION:
            raise UsageError(
                f"a change set of version {data.get('version')!r}, where this program reads {VERSION}; "
                "run the conversation again"
            )
        changes = cls(
            tables=tuple(
                TableChanges(
                    **{name: table[name] for name in ("schema", "table", "columns", "method", "reason")},
                    key=None if table["key"] is None else tuple(table["key"]),
                    rows=tuple(
                        RowChange(**{**row, "changed": tuple(row["changed"])}) for row in table["rows"]
                    ),
                )
                for table in data["tables"]
            ),
            sequences=tuple(SequenceChange(**item) for item in data["sequences"]),
            objects=tuple(ObjectChange(**item) for item in data["objects"]),
        )
        if data.get("hash") != changes.hash:
            raise UsageError("the change set's hash is not that of its content: the file was cut or edited")
        return changes
