"""Recorded conversations whose end state is a database. The others: `tests/unit` of the same name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.databases import connected, scratch_database
from support.recorded import RECORDED, graded, outcome, recording, told, varied
from support.rubrics import PostgresWorld

from redteam_rubrics import outcome_of

if TYPE_CHECKING:
    from redteam_forker.servers import Server


@pytest.mark.parametrize("name", [name for name in RECORDED if "database" in recording(name)])
async def test_a_recorded_end_state_gets_its_verdicts_and_others_without_its_protection(
    server: Server, name: str
) -> None:
    data = recording(name)
    async with (
        scratch_database(server, data["database"]) as database,
        connected(server, database) as session,
        session.transaction(readonly=True),
    ):
        world = PostgresWorld(session)
        verdicts = await graded(data, world)
        assert told(verdicts) == data["verdicts"], [verdict.reason for verdict in verdicts]
        assert outcome_of(verdicts) == data["outcome"]
        for off in data["switched_off"]:
            assert off["outcome"] != data["outcome"]
            assert await outcome(varied(data, off), world) == off["outcome"]
