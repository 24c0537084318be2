"""The fork as it was before the conversation, as views: rules can compare an end state with its beginning."""

from __future__ import annotations

import functools
import hashlib
import json
from importlib import resources
from typing import TYPE_CHECKING, Any

from redteam_forker.names import quote_literal

if TYPE_CHECKING:
    from redteam_forker.changes.changeset import ChangeSet, TableChanges

__all__ = ["before_schema"]


def before_schema(changes: ChangeSet) -> tuple[str, ...]:
    """SQL statements that make the schema `before` in the fork, to be run by our own role, and rolled back.

    `before.appointments` shows the rows of `public.appointments` as they were; a table of another schema is
    `before."billing.claims"`. Untouched tables are plain views, so indexes serve. A table that the
    conversation made is there and empty. The views have the columns that the fork's tables have now; one
    whose type was altered so that it cannot hold what it held is a text. They are readable by all.

    Whatever a conversation does, `before` is this schema. One of the fork's own by that name, from the seed
    or from the conversation, is called `before_own` until the rollback, and its tables are
    `before."before.claims"` as they were.
    """
    wanted = json.dumps([_needed(table) for table in changes.tables], ensure_ascii=False)
    tag = f"$forker_{hashlib.sha256(wanted.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}$"
    views = _template() % {"tag": tag, "changes": quote_literal(wanted)}
    return (
        # The agent may have made an operator in a schema of the path; nothing of ours may find it (P46).
        "SET LOCAL search_path = pg_catalog",
        views,
        "SET LOCAL search_path TO DEFAULT",
        "GRANT USAGE ON SCHEMA before TO PUBLIC",
        "GRANT SELECT ON ALL TABLES IN SCHEMA before TO PUBLIC",
    )


@functools.cache
def _template() -> str:
    return resources.files(__package__).joinpath("before.sql").read_text(encoding="utf-8")


def _needed(table: TableChanges) -> dict[str, Any]:
    return {
        "schema": table.schema,
        "table": table.table,
        "key": None if table.key is None else list(table.key),
        "columns": [[name, kind] for name, kind in table.columns.items()],
        "old": [dict(row.old) for row in table.rows if row.old is not None],
        # With a key, that is all that is needed of a new row to leave it out.
        "new": [dict(row.key or row.new) for row in table.rows if row.new is not None],
    }
