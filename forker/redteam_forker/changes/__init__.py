"""Change sets: exactly what differs between a fork and its template's baseline.

`collect_changes` reads both sides and returns a `ChangeSet`; `before_schema` gives the SQL that shows the
fork's tables as they were; `since` takes away what an earlier change set of the same fork already held.
"""

from __future__ import annotations

from redteam_forker.changes.attribution import CallSpan, attributed
from redteam_forker.changes.before import before_schema
from redteam_forker.changes.changeset import (
    ChangeSet,
    ObjectChange,
    RowChange,
    SequenceChange,
    TableChanges,
    Write,
)
from redteam_forker.changes.collect import collect_changes
from redteam_forker.changes.since import since

__all__ = [
    "CallSpan",
    "ChangeSet",
    "ObjectChange",
    "RowChange",
    "SequenceChange",
    "TableChanges",
    "Write",
    "attributed",
    "before_schema",
    "collect_changes",
    "since",
]
