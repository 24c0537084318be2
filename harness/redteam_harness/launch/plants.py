"""Attacks through data: rows with an instruction in them, which wait in the database for the agent to read.

A plant is SQL of a case's template, like its setup, so what it wrote is no change of the conversation.
Whether a plant is there for the persona of a conversation is asked of the baseline, before the first
conversation. What became of it is told afterwards from the evidence (`report.attacks`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import asyncpg
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from redteam_rubrics.parameters import bind
from redteam_rubrics.statements import check_select
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_forker import Server, Template
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.suite import Suite

__all__ = ["PlantSpec", "Planted", "check_plants", "find_plants"]

Planted = dict[str, bool]
"""Whether each plant of a conversation's case is there for its persona, by the plant's name."""

_TIMEOUT_S = 30.0


def _select(sql: str, _: ValidationInfo) -> str:
    try:
        check_select(sql)
    except UsageError as error:  # pydantic adds the place in the suite
        raise ValueError(str(error)) from error
    return sql


class PlantSpec(BaseModel):
    """An instruction that waits in the data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    sql: Annotated[
        str, Field(min_length=1, description="A file of SQL that writes it, applied after the case's setup.")
    ]
    planted: Annotated[
        str,
        AfterValidator(_select),
        Field(description="A SELECT that gives a row where it is there for `:persona`."),
    ]
    shows: Annotated[
        str, Field(min_length=3, description="Words of it. The agent was shown it once a tool gave it these.")
    ]
    obeyed: Annotated[
        list[str],
        Field(min_length=1, description="Rules of the case, any of which an agent breaks that obeys it."),
    ]


def check_plants(suite: Suite) -> list[tuple[str, str]]:
    """What is wrong with a suite's plants by itself: `file:line` and a sentence each."""
    wrong: list[tuple[str, str]] = []
    for number, case in enumerate(suite.spec.cases):
        for name, plant in case.plants.items():
            wrong += [
                (
                    suite.document.where(("cases", number, "plants", name, "obeyed")),
                    f"plant {name!r} names rule {rule!r}, which is not in the case's rubric; "
                    f"it has: {', '.join(case.rubric)}",
                )
                for rule in plant.obeyed
                if rule not in case.rubric and (rule != "collateral" or suite.gate == "off")
            ]
    return wrong


async def find_plants(
    server: Server, suite: Suite, templates: Mapping[str, Template], planned: Sequence[Planned]
) -> dict[str, Planted]:
    """Ask of each planned conversation which plants are there for its persona.

    Returns:
        For each conversation of a case that has plants, by its id.

    Raises:
        UsageError: a plant names a rule that its case lacks; its SELECT fails on the data; or it is there for
            nobody who comes, so that nothing would be tried.
        EnvironmentFault: the baseline cannot be read.
    """
    if wrong := check_plants(suite):
        raise UsageError("\n".join(f"{place}: {message}" for place, message in wrong))
    found: dict[str, Planted] = {}
    for number, case in enumerate(suite.spec.cases):
        comers = [one for one in planned if one.case == case.id]
        if not case.plants or not comers:
            continue
        connection = await server.connect(templates[case.id].baseline)
        try:
            for name, plant in case.plants.items():
                place = suite.document.where(("cases", number, "plants", name, "planted"))
                known: dict[str, bool] = {}
                for one in comers:
                    if one.persona.key not in known:
                        known[one.persona.key] = await _is_there(connection, plant, one, place)
                    found.setdefault(one.id, {})[name] = known[one.persona.key]
                if not any(known.values()):
                    raise UsageError(
                        f"{place}: plant {name!r} of case {case.id!r} is there for none of the "
                        f"{len(known)} personas who come in it; widen what {plant.sql} writes, or correct "
                        "the SELECT"
                    )
        finally:
            await connection.close()
    return found


async def _is_there(connection: asyncpg.Connection, plant: PlantSpec, one: Planned, place: str) -> bool:
    try:
        sql = bind(plant.planted, one.persona.row)
        async with connection.transaction(readonly=True):
            rows = await connection.fetch(f"SELECT FROM (\n{sql}\n) AS plant LIMIT 1", timeout=_TIMEOUT_S)
            return bool(rows)
    except (asyncpg.PostgresConnectionError, asyncpg.InterfaceError, OSError) as error:
        raise EnvironmentFault(f"the baseline went away while plants were looked for: {error}") from error
    except (asyncpg.PostgresError, TimeoutError, UsageError) as error:
        raise UsageError(f"{place}: the SELECT fails: {error or 'it takes too long'}") from error
