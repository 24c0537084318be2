"""Change sets to be looked at: every shape of change, wide tables, long sets, and values that mean harm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_forker.changes import (
    ChangeSet,
    ObjectChange,
    RowChange,
    SequenceChange,
    TableChanges,
    Write,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["HOSTILE", "NAMES", "everything", "hostile_set", "one_update", "table_of"]

NAMES = {"c1": "book, turn 2", "c2": "reschedule, turn 4", "c3": "cancel, turn 6"}

# What values can try: the terminal, HTML, Markdown tables and spans, the writing direction, what is not seen.
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "\x9b31mC1 \x85 \x7f \x00 \r over",
    "<script>alert(1)</script>",
    "</td></table></style><img src=x onerror=alert(1)>",
    "\"><svg onload='alert(1)'>&amp;&lt;",
    "a | b \\| c \\\\| d |",
    "`code` ``two`` ``` three",
    "`",
    "\\",
    "|",
    "**bold** _it_ ~~s~~ [x](javascript:alert(1)) ![i](http://evil/x.png) @octocat #1 http://evil :smile:",
    "<!-- --> <details> ]]> {{ x }} ${y}",
    "line\nline\r\nline\u2028para\u2029\x0b\x0c end",
    "\u202egnp.exe\u202c \u2066hidden\u2069 \u200f \u061c",
    "zero\u200bwidth\ufeff soft\u00adhyphen nb\u00a0space tag\U000e0041 filler\u3164",
    "half \ud83d and \udcff",
    "\u05e9\u05dc\u05d5\u05dd (\u05d0\u05d1\u05d2)",
    "[red]markup[/] [link=x]y[/link]",
    "null",
    "",
    " blank ",
    '"null"',
)


def table_of(rows: list[RowChange], columns: Mapping[str, str], **more: Any) -> TableChanges:
    """A table of rows, keyed by its first column."""
    facts: dict[str, Any] = {
        "schema": "public",
        "table": "t",
        "key": (next(iter(columns)),),
        "method": "pages",
        "reason": None,
        **more,
    }
    return TableChanges(columns=columns, rows=tuple(rows), **facts)


def one_update(old: str | None, new: str | None, type_: str = "text") -> ChangeSet:
    """One cell of one row, changed."""
    row = RowChange(
        op="update",
        key={"id": "1"},
        old={"id": "1", "v": old, "other": "same"},
        new={"id": "1", "v": new, "other": "same"},
        changed=("v",),
        xid=100,
        by=("c2",),
    )
    return ChangeSet(tables=(table_of([row], {"id": "bigint", "v": type_, "other": "text"}),))


def hostile_set() -> ChangeSet:
    """Every hostile value as a key, a cell of each kind, a name, a definition and a call's name."""
    tables = []
    for number, value in enumerate(HOSTILE):
        name = (value or "empty").replace("\0", "")[:50]
        columns = {"id": "text", f"column {name}": "text", "doc": "jsonb"}
        before = {"id": value, f"column {name}": "before", "doc": '{"a": 1}'}
        after = {"id": value, f"column {name}": value, "doc": '{"' + f"k{number}" + '": 2}'}
        rows = [
            RowChange(
                op="update",
                key={"id": value},
                old=before,
                new=after,
                changed=(f"column {name}", "doc"),
                xid=1,
                by=(value,),
            ),
            RowChange(op="insert", key={"id": value}, old=None, new=after, xid=1, by=()),
            RowChange(op="delete", key={"id": value}, old=after, new=None),
        ]
        tables.append(table_of(rows, columns, schema=f"s{number}", table=name, reason=value, method="keys"))
    objects = tuple(
        ObjectChange(
            op="alter", kind="function", name=value, old=f"a {value}\nb", new=f"a {value}\nc {value}"
        )
        for value in HOSTILE
    )
    sequences = tuple(SequenceChange(schema="s", name=value, old="1", new="2") for value in HOSTILE)
    writes = tuple(
        Write(xid=9, schema="s", table=value, op="update", rows=1, by=(value,)) for value in HOSTILE
    )
    return ChangeSet(tables=tuple(tables), objects=objects, sequences=sequences, writes=writes)


def everything() -> ChangeSet:
    """What a conversation may leave, and more."""
    visits = {
        "id": "bigint",
        "patient_id": "bigint",
        "kind": "text",
        "starts_at": "timestamp with time zone",
        "note": "text",
        "details": "jsonb",
        "scan": "bytea",
        "paid": "boolean",
    }
    old = {
        "id": "90311",
        "patient_id": "2864",
        "kind": "new",
        "starts_at": "2026-12-03 14:30:00+00",
        "note": "Came with a cough since Monday. " * 8 + "Wants Dr. Weber. " + "Allergic to penicillin. " * 6,
        "details": '{"room": 4, "tags": ["a", "b"], "contact": {"phone": "0711 1", "mail": null}}',
        "scan": "\\x" + "ab" * 3000,
        "paid": "f",
    }
    new = {
        **old,
        "kind": "follow_up",
        "starts_at": "2026-12-04 09:00:00+00",
        "note": (old["note"] or "").replace("Dr. Weber", "Dr. Okafor"),
        "details": '{"room": 4, "tags": ["a", "c", "d"], "contact": {"phone": "0711 2"}}',
        "scan": "\\x" + "ab" * 2999,
        "paid": "t",
    }
    rows = [
        RowChange(
            op="update",
            key={"id": "90311"},
            old=old,
            new=new,
            changed=("kind", "starts_at", "note", "details", "scan", "paid"),
            xid=70,
            by=("c2",),
        ),
        RowChange(
            op="insert", key={"id": "90312"}, old=None, new={**old, "id": "90312", "note": None}, by=("c1",)
        ),
        RowChange(op="delete", key={"id": "90313"}, old={**old, "id": "90313"}, new=None, by=("c3", "c2")),
        RowChange(
            op="update",
            key={"id": "90314"},
            old={**old, "id": "90314", "note": ""},
            new={**old, "id": "90314", "note": None},
            changed=("note",),
            by=(),
        ),
    ]
    wide = {"id": "bigint", **{f"column_{n:02}": "text" for n in range(1, 41)}}
    image = {"id": "7", **{f"column_{n:02}": f"value {n}" for n in range(1, 41)}}
    wide_row = RowChange(
        op="update",
        key={"id": "7"},
        old=image,
        new={**image, "column_17": "another"},
        changed=("column_17",),
        by=("c1",),
    )
    many = [
        RowChange(
            op="insert", key={"id": str(n)}, old=None, new={"id": str(n), "line": f"line {n}"}, by=("c1",)
        )
        for n in range(1, 41)
    ]
    return ChangeSet(
        tables=(
            table_of(rows, visits, table="appointments"),
            table_of([wide_row], wide, table="wide", method="keys", reason="the table was rewritten"),
            table_of(many, {"id": "bigint", "line": "text"}, schema="billing", table="lines", omitted=3),
            table_of(
                [RowChange(op="delete", key=None, old={"a": "1", "b": None}, new=None)],
                {"a": "integer", "b": "text"},
                table="keyless",
                key=None,
                method="multiset",
                reason="it has no key",
            ),
        ),
        sequences=(SequenceChange(schema="public", name="appointments_id_seq", old="90311", new="90312"),),
        objects=(
            ObjectChange(
                op="create",
                kind="index",
                name="public.i",
                old=None,
                new="CREATE INDEX i ON appointments (kind)",
            ),
            ObjectChange(
                op="alter",
                kind="function",
                name="public.f()",
                old="CREATE FUNCTION f()\nRETURNS int\nAS $$\nSELECT 1\n$$",
                new="CREATE FUNCTION f()\nRETURNS int\nAS $$\nSELECT 2\n$$",
            ),
        ),
        writes=(
            Write(xid=70, schema="public", table="appointments", op="update", rows=1, by=("c2",)),
            Write(xid=71, schema="public", table="patients", op="update", rows=2, by=("c1",)),
            Write(xid=72, schema="public", table="audit", op="insert", rows=1, by=()),
        ),
    )
