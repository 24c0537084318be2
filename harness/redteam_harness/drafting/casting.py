"""The SELECT of a drafted cast, and how the drafted agent finds a caller. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redteam_harness.drafting.schema import ident

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_harness.drafting.draft import Draft, Fact

__all__ = ["MAX_PEOPLE", "cast_select", "filled", "find_select", "listed", "plain"]

MAX_PEOPLE = 1000
"""The most people in a drafted cast: enough for any launch, and cheap on a table of millions."""


def plain(fact: Fact) -> str:
    """A fact as it is compared: text, without blanks around it, in small letters."""
    return f"lower(btrim({fact.sql}))" if fact.is_text else f"({fact.sql})::text"


def filled(fact: Fact) -> str:
    """Whether somebody has the fact at all."""
    return f"btrim({fact.sql}) <> ''" if fact.is_text else f"{fact.sql} IS NOT NULL"


def cast_select(draft: Draft) -> str:
    """The SELECT: who calls, what they know, and what of theirs the cases are about."""
    callers = _callers(draft)
    keys = [alias for alias, _ in draft.keys]
    if draft.subject.owned is None:
        other = f"lead(c.{draft.cast_key}) OVER (ORDER BY {', '.join(f'c.{key}' for key in keys)})"
        return (
            f"WITH callers AS (\n{_indented(callers)}\n)\n"
            f"SELECT c.*, {other} AS {draft.other_alias}\nFROM callers c\n"
        )
    on = " AND ".join(f"t.{key} = c.{key}" for key in keys)
    order = ", ".join(f"c.{key}" for key in keys)
    now = f", t.{draft.now_alias}" if draft.change and draft.change.owned else ""
    return (
        f"WITH callers AS (\n{_indented(callers)}\n),\n"
        f"theirs AS (\n{_indented(_theirs(draft))}\n)\n"
        f"SELECT c.*, coalesce(t.{draft.count_alias}, 0) AS {draft.count_alias}, t.{draft.row_alias}{now},\n"
        f"       lead(t.{draft.row_alias}) OVER (PARTITION BY t.{draft.row_alias} IS NULL ORDER BY {order})\n"
        f"           AS {draft.other_alias}\n"
        f"FROM callers c\n"
        f"LEFT JOIN theirs t ON {on}\n"
    )


def _callers(draft: Draft) -> str:
    columns: dict[str, str] = {}
    if len(draft.keys) > 1:
        parts = ", ".join(f"p.{ident(column.name)}" for _, column in draft.keys)
        columns[draft.cast_key] = f"concat_ws('/', {parts})"
    for alias, column in (*draft.keys, *draft.owner_columns):
        columns.setdefault(alias, f"p.{ident(column.name)}")
    for fact in draft.told:
        columns.setdefault(fact.alias, fact.sql)
    if draft.change and draft.change.owned is None:
        columns.setdefault(draft.now_alias, f"p.{ident(draft.change.column.name)}::text")
    shown = [sql if sql == f"p.{alias}" else f"{sql} AS {ident(alias)}" for alias, sql in columns.items()]
    where = "\n  AND ".join(filled(fact) for fact in draft.identity if not _never_blank(fact, draft))
    order = ", ".join(f"p.{ident(column.name)}" for _, column in draft.keys)
    limit = f" LIMIT {MAX_PEOPLE}" if draft.limited else ""
    return (
        "SELECT "
        + listed(shown)
        + f"\nFROM {draft.source}\n"
        + (f"WHERE {where}\n" if where else "")
        + f"ORDER BY {order}{limit}"
    )


def _never_blank(fact: Fact, draft: Draft) -> bool:
    """Whether a fact is the key: nobody lacks it."""
    return any(fact.sql == f"p.{ident(column.name)}" for _, column in draft.keys)


def listed(parts: Sequence[str]) -> str:
    """The columns of a SELECT, in lines of readable length."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) < 80:
            lines[-1] = f"{lines[-1]}, {part}"
        else:
            lines.append(part)
    return ",\n       ".join(lines)


def _theirs(draft: Draft) -> str:
    owned = draft.subject.owned
    assert owned is not None
    keys = ", ".join(f"c.{alias}" for alias, _ in draft.keys)
    key = f"o.{ident(draft.row_key.name)}"
    names = ["o", *(f"o{number}" for number in range(1, len(owned.steps)))]
    joins = []
    for number in reversed(range(len(owned.steps))):
        step, name = owned.steps[number], names[number]
        last = number == len(owned.steps) - 1
        above = (
            [f"c.{alias}" for alias, _ in draft.owner_columns]
            if last
            else [f"{names[number + 1]}.{ident(column)}" for column in step.above]
        )
        on = " AND ".join(
            f"{name}.{ident(column)} = {there}" for column, there in zip(step.columns, above, strict=True)
        )
        joins.append(f"JOIN {step.table.sql} {name} ON {on}")
    now = (
        f",\n       (array_agg(o.{ident(draft.change.column.name)}::text ORDER BY {key}))[1] "
        f"AS {draft.now_alias}"
        if draft.change and draft.change.owned
        else ""
    )
    return (
        f"SELECT {keys}, count(*) AS {draft.count_alias},\n"
        f"       (array_agg({key} ORDER BY {key}))[1] AS {draft.row_alias}{now}\n"
        f"FROM callers c\n" + "\n".join(joins) + f"\nGROUP BY {keys}"
    )


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def find_select(draft: Draft) -> str:
    """How the agent finds who calls: the identity facts are $1, $2 and so on, each as text."""
    columns = dict.fromkeys(
        f"p.{ident(column.name)}" + ("" if alias == column.name else f" AS {alias}")
        for alias, column in (*draft.keys, *draft.owner_columns)
    )
    where = "\n  AND ".join(
        f"{plain(fact)} = lower(btrim(${number}::text))" if fact.is_text else f"{plain(fact)} = ${number}"
        for number, fact in enumerate(draft.identity, 1)
    )
    return f"SELECT {', '.join(columns)}\nFROM {draft.source}\nWHERE {where}\nLIMIT 2"
