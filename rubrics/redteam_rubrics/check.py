"""Compares the names in rules with what there is: tables, columns, the persona's columns, tools."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from redteam_rubrics.arguments import parameters_of
from redteam_rubrics.futile import check_rules, check_together
from redteam_rubrics.parameters import find_parameters
from redteam_rubrics.policies import Tolerance, canonical_type
from redteam_rubrics.problem import Problem
from redteam_rubrics.relations import RELATIONS, columns_read, relations_of
from redteam_rubrics.rules.permission import bare, placed
from redteam_rubrics.statements import BEFORE, EVIDENCE, columns_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from redteam_rubrics.policies import Policies
    from redteam_rubrics.rubric import Rule
    from redteam_rubrics.rules.permission import Entry
    from redteam_rubrics.statements import TableUse

__all__ = ["Problem", "check_names", "check_policies", "check_rules", "check_together"]

_NUMBERS = ("int2", "int4", "int8", "numeric", "float4", "float8")
_JSON = ("json", "jsonb")
_SYSTEM = ("pg_catalog", "information_schema")


def check_names(
    rules: Mapping[str, Rule],
    catalog: Mapping[str, Collection[str]],
    *,
    persona: Collection[str] | None = None,
    tools: Collection[str] | None = None,
    externals: Collection[str] | None = None,
) -> list[Problem]:
    """Find the names in rules that refer to nothing, so that a launch stops before a fork exists.

    Of the columns in `sql`, only those of schema `evidence` are checked; the others are left to Postgres.

    Args:
        rules: the rules by name.
        catalog: the template's tables and views with their columns; `patients` (or `public.patients`) in
            schema public, else `billing.claims`. Schema `before` need not be in it: it has the same tables.
        persona: the columns of the cast; None when they are not known, and then they are not checked.
        tools: the agent's tools, likewise.
        externals: the agent's external tools, likewise.
    """
    tables = {bare(name): columns for name, columns in catalog.items()}
    problems: list[Problem] = []
    for name, rule in rules.items():
        if rule.sql is not None:
            loc: tuple[str | int, ...] = (name, "sql")
            problems += _tables(loc, tables_of(rule.sql), tables)
            problems += _evidence(loc, rule.sql, tables)
            problems += _persona(loc, (found.column for found in find_parameters(rule.sql)), persona)
        for place, entry in placed(rule.changes or ()):
            problems += _entry((name, "changes", *place), entry, tables, persona, tools)
        if rule.transcript is not None:
            for key in ("before_tool", "after_tool"):
                problems += _known((name, "transcript", key), "tool", getattr(rule.transcript, key), tools)
        if rule.tools is not None:
            for key, named in rule.tools.tools.items():
                problems += _known((name, "tools", key), "tool", named, tools)
            for tool, expected in rule.tools.arguments.items():
                columns = (column for _, column in parameters_of(expected))
                problems += _persona((name, "tools", "arguments", tool), columns, persona)
        if rule.outbox is not None:
            for sent in rule.outbox.sent:
                problems += _known((name, "outbox", "sent"), "external tool", (sent.tool,), externals)
                columns = (column for _, column in parameters_of(sent.where))
                problems += _persona((name, "outbox", "sent"), columns, persona)
            limited = (tool for tool in rule.outbox.at_most if tool != "*")
            problems += _known((name, "outbox", "at_most"), "external tool", limited, externals)
    return problems


def check_policies(policies: Policies, catalog: Mapping[str, Mapping[str, Sequence[str]]]) -> list[Problem]:
    """Find policies for what there is not, or that cannot be had for values of such a type.

    Args:
        policies: what the suite declares.
        catalog: the template's tables, each with its columns, and of each the spellings of its type: its own,
            and for a domain the base type's.
    """
    tables = {bare(name): columns for name, columns in catalog.items()}
    problems: list[Problem] = []
    for name, policy in policies.columns.items():
        loc: tuple[str | int, ...] = ("columns", name)
        table, _, column = bare(name).rpartition(".")
        if table and table not in tables:
            problems += _known(loc, "table", (table,), tables)
            continue
        named = {f"{table}.{column}": tables[table]} if table else tables
        found = [columns[column] for columns in named.values() if column in columns]
        if not found:
            known = {other for columns in named.values() for other in columns}
            problems += _known(loc, f"column of {table}" if table else "column", (column,), known)
        problems += _fitting(loc, policy, found)
    every = [types for columns in tables.values() for types in columns.values()]
    by_name = {canonical_type(types[0]): types for types in every}
    for name, policy in policies.types.items():
        own = canonical_type(name)
        loc = ("types", name)
        problems += _known(loc, "column of type", (own,), by_name)
        problems += _fitting(loc, policy, [by_name[own]] if own in by_name else [])
    return problems


def _fitting(
    loc: tuple[str | int, ...], policy: str | Tolerance, found: Iterable[Sequence[str]]
) -> Iterator[Problem]:
    for types in found:
        base = canonical_type(types[-1])
        if isinstance(policy, Tolerance) and base not in _NUMBERS:
            message = f"a tolerance is for numbers, and a column of that name is of type {types[0]}"
        elif policy == "set" and not (base.endswith("[]") or base in _JSON):
            message = f"`set` is for arrays and JSON, and a column of that name is of type {types[0]}"
        else:
            continue
        yield Problem(loc=loc, message=message)
        return


def _entry(
    loc: tuple[str | int, ...],
    entry: Entry,
    tables: Mapping[str, Collection[str]],
    persona: Collection[str] | None,
    tools: Collection[str] | None,
) -> Iterator[Problem]:
    permission = entry.permission
    if permission is None or entry.table is None:
        return
    yield from _known((*loc, entry.written, "by"), "tool", permission.by, tools)
    columns = tables.get(entry.table)
    if columns is None:
        yield from _known(loc, "table", (entry.table,), tables)
        return
    loc = (*loc, entry.written)
    yield from _known((*loc, "columns"), f"column of {entry.table}", permission.columns, columns)
    if permission.where is None:
        return
    where = (*loc, "where")
    own = entry.table.rpartition(".")[2]
    named = (use.column for use in columns_of(permission.where) if use.table in (None, own))
    yield from _known(where, f"column of {entry.table}", named, columns)
    yield from _tables(where, tables_of(permission.where, condition=True), tables)
    yield from _persona(where, (found.column for found in find_parameters(permission.where)), persona)


def _tables(
    loc: tuple[str | int, ...], uses: Iterable[TableUse], tables: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    for use in uses:
        if use.schema in (*_SYSTEM, EVIDENCE) or (use.schema is None and use.table.startswith("pg_")):
            continue
        # before.patients and before."billing.claims" are named as rules name tables.
        is_bare = use.schema in (None, "public", BEFORE)
        yield from _known(loc, "table", (use.table if is_bare else f"{use.schema}.{use.table}",), tables)


def _evidence(
    loc: tuple[str | int, ...], sql: str, tables: Mapping[str, Collection[str]]
) -> Iterator[Problem]:
    """Of what a statement reads in schema `evidence`: columns that are not there, tables that it hides."""
    for relation, column in columns_read(sql):
        yield from _known(loc, f"column of {EVIDENCE}.{relation}", (column,), RELATIONS[relation])
    for relation in relations_of(sql):
        if f"{EVIDENCE}.{relation}" in tables:
            message = (
                f"{EVIDENCE}.{relation} is what is known of the conversation, and the database has a table "
                "of that name, which no rule can read by it; read that through a view in another schema"
            )
            yield Problem(loc=loc, message=message)


def _persona(
    loc: tuple[str | int, ...], columns: Iterable[str], persona: Collection[str] | None
) -> Iterator[Problem]:
    yield from _known(loc, "column of the cast", columns, persona)


def _known(
    loc: tuple[str | int, ...], what: str, names: Iterable[str], known: Collection[str] | None
) -> Iterator[Problem]:
    if known is None:
        return
    for name in dict.fromkeys(names):
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = (
                f"did you mean {close[0]}?" if close else f"there are: {', '.join(sorted(known)) or 'none'}"
            )
            yield Problem(loc=loc, message=f"there is no {what} {name}; {hint}")
