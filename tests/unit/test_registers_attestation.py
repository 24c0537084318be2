"""What an attestation says, what it lacks, and what is refused where isolation was demanded."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from support.runs import finished, summary

from redteam_forker import Fork, ServerFacts
from redteam_harness.registers.attestation import Attesting
from redteam_harness.registers.degraded import CODES_OF_LACKS, degraded, demanded, require_isolation
from redteam_harness.report.data import report_data
from redteam_harness.report.isolation import attestation_counts, attestation_lines
from redteam_harness.report.junit import junit
from redteam_harness.report.markdown import markdown
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_forker import Template
    from redteam_harness.registers.attestation import AgentKind

FACTS = ServerFacts(
    kind="embedded",
    version="18.6",
    version_num=180006,
    host="/socket",
    port=5432,
    instance="abcd",
    superuser=True,
    placement="",
    connections=90,
    clone=True,
    file_system="xfs",
)
FORK = Fork(
    name="rt_one", password="s", host="/socket", port=5432, watermark=1, created_s=0.01, reaches=("rt_one",)
)
TEMPLATE = cast("Template", SimpleNamespace(name="rt_template", size_bytes=1000))
REFUSED = {"postgres": "refused", "rt_template": "refused"}
GUARDED = SimpleNamespace(egress=("mail.example",))
MISS = {
    "kind": "external",
    "name": "charge",
    "arguments": {},
    "error": "UnmockedExternalCall: charge has no mock",
}
REFUSAL = {"kind": "agent_fault", "turn": 1, "cause": "egress", "message": "refused"}


def held(
    facts: ServerFacts = FACTS,
    agent: AgentKind = "python",
    *,
    session: object = GUARDED,
    walls: dict[str, str] | None = REFUSED,
    fork: Fork = FORK,
    left: tuple[str, ...] | None = (),
) -> dict[str, Any]:
    """The record of a conversation that came to its end."""
    attesting = Attesting(facts, agent, walls)
    attesting.forked(fork, TEMPLATE)
    attesting.opened(fork.name, session)
    attesting.dropped(left)
    return attesting.to_json([MISS, REFUSAL, {"kind": "user", "turn": 1}])


def codes(record: dict[str, Any] | None, *, over: bool = True) -> list[str]:
    return [one.code for one in degraded(record, over=over)]


def test_a_walled_conversation_lacks_nothing_and_says_what_was_refused_and_missed() -> None:
    record = held()
    assert codes(record) == []
    assert record["fork"] | {"at": ""} == {
        "name": "rt_one",
        "template": "rt_template",
        "at": "",
        "created_s": 0.01,
        "copied_by": "clone",
        "role_reaches": ["rt_one"],
    }
    assert record["egress"] == {"guard": "armed", "allowed": ["mail.example"], "refused": 1}
    assert record["mock_misses"] == ["charge"]
    assert record["drop"]["catalog_shows"] == []


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(None, ["unattested"], id="nothing was attested"),
        pytest.param(
            held(replace(FACTS, kind="existing"), walls=None), ["existing-server"], id="somebody's server"
        ),
        pytest.param(
            held(fork=replace(FORK, reaches=("postgres", "rt_one"))), ["role-reaches"], id="by its grants"
        ),
        pytest.param(held(walls={**REFUSED, "postgres": "entered"}), ["role-reaches"], id="by trying"),
        pytest.param(held(walls=None), ["walls-untried"], id="not tried"),
        pytest.param(held(walls={"postgres": "not decided: OSError"}), ["walls-untried"], id="tried in vain"),
        pytest.param(held(session=object()), ["no-egress-guard"], id="a guard that nobody spoke of"),
        pytest.param(
            held(session=SimpleNamespace(egress=None)), ["no-egress-guard"], id="a guard that is not armed"
        ),
        pytest.param(held(agent="command", session=object()), ["no-egress-guard"], id="a program"),
        pytest.param(held(agent="url", session=object()), ["egress-unknown"], id="a service"),
        pytest.param(held(left=("role",)), ["drop-unverified"], id="a role that stayed"),
        pytest.param(held(left=None), ["drop-unverified"], id="a catalog that could not be asked"),
    ],
)
def test_what_lacks_has_a_code(record: dict[str, Any] | None, expected: list[str]) -> None:
    assert codes(record) == expected
    assert set(expected) <= set(CODES_OF_LACKS)


def test_a_drop_is_not_claimed_before_it_was_seen_and_a_kept_fork_is_no_lack() -> None:
    attesting = Attesting(FACTS, "python", REFUSED)
    assert codes(attesting.to_json()) == []  # it had no fork: nothing ran
    attesting.forked(FORK, TEMPLATE)
    assert attesting.to_json()["tools_saw"] is None
    assert codes(attesting.to_json(), over=False) == ["tools-unseen"]
    attesting.opened("rt_one", GUARDED)
    assert attesting.to_json()["drop"] is None
    assert codes(attesting.to_json(), over=False) == []
    assert codes(attesting.to_json()) == ["drop-unverified"]
    attesting.kept()
    assert codes(attesting.to_json()) == []


def test_the_fork_of_an_attempt_that_was_given_up_is_attested_too() -> None:
    attesting = Attesting(FACTS, "python", REFUSED)
    for name, left in (("rt_one", ("database", "role")), ("rt_two", ())):
        fork = replace(FORK, name=name, reaches=(name,))
        attesting.forked(fork, TEMPLATE)
        attesting.opened(name, GUARDED)
        attesting.dropped(left, "busy" if left else "")
    record = attesting.to_json()
    assert record["fork"]["name"] == "rt_two"
    (earlier,) = record["earlier_forks"]
    assert (earlier["name"], earlier["drop"]["why"]) == ("rt_one", "busy")
    assert codes(record) == ["drop-unverified"]


def test_what_is_demanded_and_cannot_be_had_is_refused_by_name() -> None:
    theirs = replace(FACTS, kind="existing", host="db.example")
    require_isolation("full", FACTS, "python")
    require_isolation("database", FACTS, "command")
    require_isolation(None, theirs, "url")
    with pytest.raises(UsageError, match=r"db\.example:5432 is not ours.*existing-server"):
        require_isolation("database", theirs, "python")
    with pytest.raises(UsageError, match=r"deployed service.*egress-unknown.*--allow-unguarded"):
        require_isolation("full", FACTS, "url")
    lacking = degraded(held(agent="command", session=object(), walls=None))
    assert [one.code for one in demanded("full", lacking)] == ["walls-untried", "no-egress-guard"]
    assert [one.code for one in demanded("database", lacking)] == ["walls-untried"]
    assert demanded(None, lacking) == []


def test_every_rendering_says_what_was_degraded_and_for_which_conversations() -> None:
    run = summary(
        [finished("c001", attestation=held()), finished("c002", attestation=held(left=("database",)))]
    )
    counts = report_data(run)["attestation"]
    assert (counts["forked"], counts["dropped"], counts["guarded"], counts["refused"]) == (2, 1, 2, 2)
    (lack,) = counts["degraded"]
    assert (lack["code"], lack["conversations"]) == ("drop-unverified", ["c002"])
    (line,) = [line for line in attestation_lines(counts) if line.startswith("degraded: ")]
    assert line.endswith("(drop-unverified, c002)")
    assert f'name="isolation" value="{line}"' in junit(run)
    assert "drop-unverified" in markdown(run, lambda name: ())


def test_a_run_of_an_earlier_version_is_told_as_not_attested() -> None:
    (line,) = attestation_lines(attestation_counts([("c001", None), ("c002", None)]))
    assert line == ("degraded: nothing was attested: the run is of an earlier version (unattested, all)")
