"""What a launch does before its first conversation: everything that can be wrong is found here."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
import anyio.to_thread

from redteam_forker import build_template, open_pool, plan_budget, read_seed
from redteam_forker.budget import fork_cost_bytes
from redteam_forker.database import creators_for
from redteam_forker.storage import find_storage
from redteam_forker.sweep import sweeping
from redteam_personas import check_case, check_offline, draw_cast
from redteam_rubrics import check_names, check_policies
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Collection, Mapping, Sequence

    from redteam_forker import Pool, Registry, Server, Template
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite
    from redteam_personas import Cast

__all__ = [
    "Built",
    "Mistake",
    "build_templates",
    "check_rules",
    "draw",
    "name_mistakes",
    "open_pools",
]

_DROPPERS = 2
_WARM = 4
_MAX_NOTES = 5

# A domain's values are its base type's, and so is what a policy may ask of them.
_CATALOG = """
    WITH RECURSIVE bases AS (
        SELECT t.oid AS type, t.oid AS base FROM pg_catalog.pg_type t WHERE t.typtype <> 'd'
        UNION ALL
        SELECT t.oid, bases.base
        FROM pg_catalog.pg_type t JOIN bases ON t.typtype = 'd' AND t.typbasetype = bases.type
    )
    SELECT n.nspname, c.relname, c.relkind IN ('r', 'p') AS is_table,
           array_agg(a.attname ORDER BY a.attnum) AS columns,
           array_agg(pg_catalog.format_type(a.atttypid, NULL) ORDER BY a.attnum) AS types,
           array_agg(pg_catalog.format_type(bases.base, NULL) ORDER BY a.attnum) AS bases
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    JOIN bases ON bases.type = a.atttypid
    WHERE c.relkind IN ('r', 'p', 'v', 'm')
      AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'
    GROUP BY 1, 2, 3
"""


class Built(NamedTuple):
    """The template of each case, by its id, and the hashes of the seeds that they were built from."""

    templates: dict[str, Template]
    seeds: tuple[str, ...]


async def build_templates(
    server: Server, registry: Registry, suite: Suite, progress: Progress, *, today: dt.date
) -> Built:
    """The template of each case: the seed, and the case's setup and plants after it.

    Raises:
        UsageError: the seed cannot be loaded as it is.
        EnvironmentFault: the server did not do it.
    """
    built: dict[tuple[str, ...], Template] = {}
    hashes: list[str] = []
    for case in suite.spec.cases:
        if case.files in built:
            continue
        files = [*suite.spec.seed.files, *case.files]
        spec = suite.spec.seed
        seed = await anyio.to_thread.run_sync(
            partial(
                read_seed,
                suite.folder,
                files,
                anchor=spec.anchor,
                moves=tuple(spec.moves),
                owners=spec.owners,
                allow=frozenset(spec.allow),
            )
        )
        template = await build_template(server, seed, role=suite.spec.role, today=today, registry=registry)
        built[case.files] = template
        hashes.append(seed.hash)
        progress.say(_template_line(template, case.files))
        for note in template.notes[:_MAX_NOTES]:
            progress.say(f"  {note}")
        if len(template.notes) > _MAX_NOTES:
            progress.say(f"  ... and {len(template.notes) - _MAX_NOTES} more notes in run.json")
    return Built({case.id: built[case.files] for case in suite.spec.cases}, tuple(hashes))


@asynccontextmanager
async def open_pools(
    server: Server, registry: Registry, built: Built, *, parallel: int
) -> AsyncIterator[dict[str, Pool]]:
    """A warm pool for each template, by case, within what the server can carry.

    Raises:
        UsageError: so many conversations at once do not fit; says how many do.
    """
    largest = max(template.size_bytes for template in built.templates.values())
    entries = await registry.entries()
    # What nobody uses makes way for this launch.
    await registry.room.make((parallel + _WARM) * fork_cost_bytes(server.facts, largest))
    budget = plan_budget(
        server.facts,
        parallel=parallel,
        warm=_WARM,
        template_bytes=largest,
        free_bytes=(await find_storage(server)).free_bytes,
        others=sum(entry.state == "leased" for entry in entries),
    )
    distinct = {template.name: template for template in built.templates.values()}
    low, high = -(-budget.low // len(distinct)), -(-budget.high // len(distinct))
    creators, droppers = anyio.CapacityLimiter(creators_for(server.facts)), anyio.CapacityLimiter(_DROPPERS)
    async with AsyncExitStack() as stack:
        pools = {
            name: await stack.enter_async_context(
                open_pool(
                    server, template, registry, low=low, high=high, creators=creators, droppers=droppers
                )
            )
            for name, template in distinct.items()
        }
        await stack.enter_async_context(sweeping(server, registry))
        yield {case: pools[template.name] for case, template in built.templates.items()}


def _template_line(template: Template, more: Sequence[str]) -> str:
    origin = "kept from before" if template.from_cache else f"built in {template.load_s:.1f} s"
    moved = f", dates moved by {template.weeks} weeks" if template.weeks else ""
    roles = f", roles made: {', '.join(template.created_roles)}" if template.created_roles else ""
    after = f" with {', '.join(more)}" if more else ""
    size = f"{template.size_bytes / 2**20:.0f} MB"
    return f"template{after}  {template.tables} tables, {size}, {origin}{moved}{roles}"


class Mistake(NamedTuple):
    """Something in a suite that cannot work: `file:line`, what is wrong, and the rule, where it is in one."""

    place: str
    message: str
    rule: str = ""


async def name_mistakes(
    server: Server,
    suite: Suite,
    templates: Mapping[str, Template],
    columns: Sequence[str],
    *,
    tools: Collection[str] | None = None,
    externals: Collection[str] | None = None,
) -> list[Mistake]:
    """Find names in rules and policies that refer to nothing.

    Args:
        server: where the templates are.
        suite: whose.
        templates: the template of each case, by its id.
        columns: the cast's.
        tools: the agent's; None where they are not known, and then they are not looked at.
        externals: its external tools; likewise.
    """
    used = {name for case in suite.spec.cases for name in case.rubric}
    rules = {name: rule for name, rule in suite.rules.items() if name in used}
    mistakes: list[Mistake] = []
    for template in {template.name: template for template in templates.values()}.values():
        connection = await server.connect(template.baseline)
        try:
            rows = await connection.fetch(_CATALOG)
        finally:
            await connection.close()
        catalog = {f"{row['nspname']}.{row['relname']}": tuple(row["columns"]) for row in rows}
        mistakes += [
            Mistake(suite.rules_document.where(problem.loc), problem.message, str(problem.loc[0]))
            for problem in check_names(rules, catalog, persona=columns, tools=tools, externals=externals)
        ]
        typed = {
            f"{row['nspname']}.{row['relname']}": {
                name: types for name, *types in zip(row["columns"], row["types"], row["bases"], strict=True)
            }
            for row in rows
            if row["is_table"]
        }
        mistakes += [
            Mistake(suite.document.where(("compare", *problem.loc)), problem.message)
            for problem in check_policies(suite.spec.compare, typed)
        ]
    return list(dict.fromkeys(mistakes))


async def check_rules(
    server: Server, suite: Suite, templates: Mapping[str, Template], columns: Sequence[str]
) -> None:
    """Check that every name in rules and policies is in the template, or in the cast (`columns`).

    Raises:
        UsageError: every problem, with file and line.
    """
    mistakes = await name_mistakes(server, suite, templates, columns)
    if mistakes:
        raise UsageError("\n".join(f"{mistake.place}: {mistake.message}" for mistake in mistakes))


async def draw(server: Server, suite: Suite, templates: Mapping[str, Template]) -> Cast:
    """The cast, read from the baseline; what the cases say of it is checked.

    Raises:
        UsageError: the select, a condition, a fact or an offline line does not fit the data.
    """
    template = templates[suite.spec.cases[0].id]
    conditions = {case.id: case.who for case in suite.spec.cases}
    connection = await server.connect(template.baseline)
    try:
        cast = await draw_cast(connection, suite.spec.personas, conditions)
    except UsageError as error:
        raise UsageError(f"{suite.document.where(('personas', 'select'))}: {error}") from None
    finally:
        await connection.close()
    for number, case in enumerate(suite.spec.cases):
        try:
            check_case(suite.parts_of(case.id), cast.columns)
            check_offline(case.offline, suite.parts_of(case.id), cast.columns)
        except UsageError as error:
            raise UsageError(f"{suite.document.where(('cases', number, 'id'))}: {error}") from None
    return cast
