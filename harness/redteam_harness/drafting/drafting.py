"""Drafts a suite for a seed: builds its template, reads it, tries what can be tried, and writes the files."""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import asyncpg

from redteam_forker import build_template, drop_template, read_seed
from redteam_harness.checks.volatile import read_volatile
from redteam_harness.drafting.agent_text import agent_text
from redteam_harness.drafting.casting import MAX_PEOPLE, cast_select
from redteam_harness.drafting.catalog import read_schema
from redteam_harness.drafting.changeable import changes
from redteam_harness.drafting.dates import read_times
from redteam_harness.drafting.draft import Draft
from redteam_harness.drafting.look import identify, subject_of
from redteam_harness.drafting.owned import owned_by
from redteam_harness.drafting.people import candidates
from redteam_harness.drafting.peopling import ADDED, people_of
from redteam_harness.drafting.rules_text import rules_text
from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.suite_text import suite_text
from redteam_harness.drafting.trial import Bench
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.prepare import build_templates, check_rules, draw
from redteam_harness.launch.schemas import schema_of
from redteam_harness.launch.suite import load_suite
from redteam_sdk.errors import InternalError, UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from redteam_forker import Registry, Seed, Server, Template
    from redteam_harness.drafting.people import Candidate
    from redteam_harness.drafting.peopling import Peopled
    from redteam_harness.drafting.schema import Schema, Table
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.schemas import Written

__all__ = ["Drafting", "draft_suite"]

SCHEMAS = ".schemas"
"""The folder with what editors complete keys from; as the first line of each file says."""

_WRITTEN: tuple[Written, ...] = ("suite", "rules")
_MAX_POLICIES = 40
_LOOK_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafting:
    """What to draft.

    Attributes:
        folder: where the files are written; it is there, and empty.
        name: the suite's.
        files: of the seed, relative to the folder, in order.
        agent: lines of YAML under `agent`; empty has one written.
        people: the table of people, where the user says which; else the likeliest.
        today: the day to which dates move.
    """

    folder: Path
    name: str
    files: tuple[str, ...]
    agent: str
    people: str | None
    today: dt.date


async def draft_suite(server: Server, registry: Registry, task: Drafting, progress: Progress) -> Draft:
    """Draft a suite and write its files: what is written is a suite that a launch would take.

    Raises:
        UsageError: the seed is refused, or it has nobody to play and nobody can be made up.
        EnvironmentFault: the server did not do it.
    """
    seed = await _seed(task, task.files)
    template = await build_template(server, seed, role=None, today=task.today, registry=registry)
    progress.say(f"template  {template.tables} tables, {template.size_bytes / 2**20:.0f} MB")
    schema = await _schema(server, template)
    ranked = candidates(schema)
    if not ranked:
        raise UsageError(
            f"no table of the seed ({', '.join(task.files)}) has a key, so nobody can be told apart; give "
            "the table of people a primary key in a file after it, or write the suite by hand "
            "(docs/suites.md)"
        )
    if task.people is not None:
        ranked = [_named(task.people, ranked)]
    bench = Bench(server=server, registry=registry, template=template)
    peopled = await people_of(bench, schema, ranked)
    plain = template
    if peopled.additions:
        (task.folder / ADDED).write_text(peopled.additions, encoding="utf-8")
        seed = await _seed(task, (*task.files, ADDED))
        template = await build_template(server, seed, role=None, today=task.today, registry=registry)
        schema = await _schema(server, template)
        bench = dataclasses.replace(bench, template=template)
        if not plain.from_cache:
            await drop_template(server, plain)
    ranked = candidates(schema)
    ranked.sort(key=lambda one: one.table.oid != _same(schema, peopled.table).oid)
    draft = await _looked(bench, schema, ranked, task, peopled)
    if not peopled.invented:
        draft = await _dated(bench, schema, seed, draft, task)
    _write(task.folder, draft)
    await _proved(server, registry, task, progress)
    return draft


def _named(people: str, ranked: Sequence[Candidate]) -> Candidate:
    """The table that the user names, with or without its schema."""
    wanted = people.replace('"', "")
    names = {one.table.rule_name: one for one in ranked} | {
        f"{one.table.schema}.{one.table.name}": one for one in ranked
    }
    if wanted not in names:
        known = [one.table.rule_name for one in ranked]
        there = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        raise UsageError(f"--people {people}: the seed has no such table with a key; it has {there}")
    return names[wanted]


async def _seed(task: Drafting, files: Sequence[str]) -> Seed:
    return await anyio.to_thread.run_sync(partial(read_seed, task.folder, files, anchor=None, moves=()))


async def _schema(server: Server, template: Template) -> Schema:
    connection = await server.connect(template.baseline)
    try:
        return await read_schema(connection)
    finally:
        await connection.close()


def _same(schema: Schema, table: Table) -> Table:
    """A table in another template of the same seed: oids differ there."""
    return next(one for one in schema.tables.values() if (one.schema, one.name) == (table.schema, table.name))


async def _looked(
    bench: Bench, schema: Schema, ranked: Sequence[Candidate], task: Drafting, peopled: Peopled
) -> Draft:
    """The draft with its cast, its subject, and a change that the database takes."""
    person = ranked[0].table
    connection = await bench.server.connect(bench.template.baseline)
    try:
        await connection.execute(f"SET statement_timeout = '{_LOOK_S}s'")
        identity = await identify(connection, person, schema)
        every, moving = await read_volatile(connection)
        volatile = {(one.column.table, one.column.name) for one in moving if one.on_update}
        subject = await subject_of(connection, person, owned_by(person, schema), moving=volatile)
        many = await connection.fetchval(
            f"SELECT count(*) FROM (SELECT FROM {person.sql} LIMIT {MAX_PEOPLE + 1}) few"
        )
        draft = Draft(
            name=task.name,
            files=task.files,
            candidates=tuple(ranked),
            named=task.people is not None,
            joins=identity.joins,
            limited=many > MAX_PEOPLE,
            identity=identity.facts,
            held=identity.held,
            subject=subject,
            change=None,
            compare={},
            additions=peopled.additions,
            agent=task.agent,
            notes=peopled.notes,
        )
        row = await connection.fetchrow(
            f"SELECT count({ident(draft.other_alias)}) AS others FROM (\n{cast_select(draft)}\n) AS who"
        )
    except asyncpg.QueryCanceledError as error:
        raise UsageError(
            f"looking at the people in {person.rule_name} took longer than {_LOOK_S} s; name another table "
            "by --people TABLE, or draft for a smaller seed"
        ) from error
    finally:
        await connection.close()
    draft = dataclasses.replace(draft, isolation=row["others"] > 0)
    options = changes(
        person,
        [subject.owned] if subject.owned else [],
        moving=volatile,
        asked=[fact.sql for fact in draft.identity],
    )
    draft = await bench.change(draft, options)
    used = {person.rule_name, draft.subject.table.rule_name, *(one.table for one in draft.effects)}
    compare = _policies(volatile, [(one.table, one.name) for one in every], used)
    if draft.change is None:
        note = (
            "No column was found that an agent could change, or the database refused each one that was "
            "tried, so there is no case with a change. decide: what may be changed?"
        )
        draft = dataclasses.replace(draft, notes=(*draft.notes, note))
    return dataclasses.replace(draft, compare=compare)


def _policies(
    volatile: Collection[tuple[str, str]], every: Collection[tuple[str, str]], used: Collection[str]
) -> dict[str, str]:
    """Policies for what moves by itself: for all tables where that is short, else for those that matter."""
    tables_of: dict[str, set[str]] = defaultdict(set)
    for table, name in every:
        tables_of[name].add(table)
    keys: dict[str, list[str]] = {}
    for name in sorted({name for _, name in volatile}):
        tables = sorted(table for table, one in volatile if one == name)
        whole = len(tables) > 1 and len(tables) == len(tables_of[name])
        keys[name] = [name] if whole else [f"{table}.{name}" for table in tables]
    if sum(map(len, keys.values())) > _MAX_POLICIES:
        near = {f"{table}.{name}" for table, name in volatile if table in used}
        keys = {name: [key for key in some if key == name or key in near] for name, some in keys.items()}
    return {key: "any" for some in keys.values() for key in some}


async def _dated(bench: Bench, schema: Schema, seed: Seed, draft: Draft, task: Drafting) -> Draft:
    """The draft with an anchor, and the columns that can move with it."""
    connection = await bench.server.connect(bench.template.baseline)
    try:
        near = {draft.person.oid, *(one.table.oid for one in owned_by(draft.person, schema))}
        times = await read_times(connection, schema, near=near, today=task.today)
    finally:
        await connection.close()
    if times.anchor is None:
        return draft
    moved = await bench.moved(seed, times.anchor, times.moves, today=task.today)
    notes = [f"Dates that cannot move with the anchor: {one}." for one in moved.refused]
    if not moved.moves:
        return dataclasses.replace(draft, notes=(*draft.notes, *notes))
    return dataclasses.replace(draft, anchor=times.anchor, moves=moved.moves, notes=(*draft.notes, *notes))


def _write(folder: Path, draft: Draft) -> None:
    texts = {"suite.yaml": suite_text(draft), "rules.yaml": rules_text(draft)}
    for written in _WRITTEN:
        path = f"{SCHEMAS}/{written}.schema.json"
        texts[f"{written}.yaml"] = f"# yaml-language-server: $schema={path}\n{texts[f'{written}.yaml']}"
        texts[path] = json.dumps(schema_of(written), indent=1, ensure_ascii=False) + "\n"
    (folder / SCHEMAS).mkdir()
    if not draft.agent:
        texts["agent.py"] = agent_text(draft)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


async def _proved(server: Server, registry: Registry, task: Drafting, progress: Progress) -> None:
    """Load what was written as a launch does: a draft that a launch would refuse is a mistake of ours."""
    try:
        suite = load_suite(task.folder)
        built = await build_templates(server, registry, suite, progress, today=task.today)
        cast = await draw(server, suite, built.templates)
        await check_rules(server, suite, built.templates, cast.columns)
        plan_suite(suite, cast)
    except UsageError as error:
        raise InternalError(
            f"the suite that was drafted for {', '.join(task.files)} would not launch: {error}"
        ) from error
