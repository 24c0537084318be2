"""Recorded conversations with known verdicts. Those with a database: `tests/integration` of the same name."""

from __future__ import annotations

import pytest
from pydantic import ValidationError
from support.recorded import RECORDED, graded, outcome, recording, told, varied
from support.rubrics import NoWorld

from redteam_rubrics import outcome_of, parse_rules

WITHOUT_DATABASE = [name for name in RECORDED if "database" not in recording(name)]


def test_every_historical_failure_is_there() -> None:
    assert set(RECORDED) >= {
        "collateral-write",
        "empty-criteria",
        "vacuous-pass",
        "forbidden-way",
        "update-then-revert",
        "duplicate-refund",
        "free-text-difference",
        "judge-steered-by-data",
        "judge-truncated",
        "hidden-tool-result",
    }


@pytest.mark.parametrize("name", WITHOUT_DATABASE)
async def test_a_recorded_conversation_gets_its_verdicts(name: str) -> None:
    data = recording(name)
    verdicts = await graded(data, NoWorld())
    assert told(verdicts) == data["verdicts"]
    assert outcome_of(verdicts) == data["outcome"]


@pytest.mark.parametrize("name", WITHOUT_DATABASE)
async def test_without_what_protects_from_it_the_failure_is_back(name: str) -> None:
    data = recording(name)
    for off in data["switched_off"]:
        assert off["outcome"] != data["outcome"]
        assert await outcome(varied(data, off), NoWorld()) == off["outcome"]


@pytest.mark.parametrize("name", [name for name in RECORDED if "refused" in recording(name)])
def test_rules_that_check_nothing_are_refused(name: str) -> None:
    for rules in recording(name)["refused"]:
        with pytest.raises(ValidationError):
            parse_rules(rules)
