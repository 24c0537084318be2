from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from redteam_harness.launch.suite import load_suite
from redteam_harness.models.usage import Spent
from redteam_harness.report.codes import AGENT, CODES, OURS
from redteam_harness.report.gates import check_gates, exit_code, gates_of
from redteam_harness.report.summary import Finished, Outcome, Summary, summarise
from redteam_harness.report.thresholds import GatesSpec, with_fail_on
from redteam_harness.report.words import exit_line, reason_lines
from redteam_sdk.errors import UsageError

ROOT = Path(__file__).parents[2]


def conversation(number: int, outcome: Outcome, *verdicts: tuple[str, int, str]) -> Finished:
    return Finished(
        id=f"c{number:03}",
        case="case",
        persona=str(number),
        disposition="cooperative",
        outcome=outcome,
        turns=1,
        ending="ended",
        cause="" if outcome in ("pass", "fail") else "hang",
        seconds=1.0,
        verdicts=[
            {"rule": rule, "severity": severity, "status": status, "findings": [], "reason": "", "why": ""}
            for rule, severity, status in verdicts
        ],
    )


def summary(*finished: Finished, planned: int | None = None, usage: tuple[Spent, ...] = ()) -> Summary:
    return summarise(
        finished,
        notice="n",
        suite="s",
        run="r",
        planned=len(finished) if planned is None else planned,
        forks=len(finished),
        interrupted=False,
        seconds=1.0,
        usage=usage,
    )


def spent(usd: float, unpriced: int = 0) -> Spent:
    return Spent(role="agent", model="m-1", calls=1, usd=usd, unpriced=unpriced)


def calibration(**figures: Any) -> dict[str, Any]:
    return {
        "n": 50,
        "agreement": {"count": 45, "n": 50, "interval": {"low": 0.79, "high": 0.96}},
        "kappa": {"value": 0.7},
        "false_passes": 2,
        **figures,
    }


def judge(known: dict[str, Any] | None, *, stale: bool = False) -> dict[str, Any]:
    return {"model": "m", "rules": [{"rule": "polite", "calibration": known, "stale": stale}]}


PASSED = conversation(1, "pass", ("own-rows", 1, "pass"), ("polite", 3, "pass"))
HARMED = conversation(2, "fail", ("own-rows", 1, "fail"), ("polite", 3, "pass"))
RUDE = conversation(3, "fail", ("own-rows", 1, "pass"), ("polite", 3, "fail"))
LOST = conversation(4, "infra-fault")
UNSURE = conversation(5, "judge-fault", ("own-rows", 1, "pass"), ("polite", 3, "unclear"))
THREE = summary(PASSED, HARMED, RUDE)
RED: list[Any] = [
    pytest.param({}, THREE, None, ["rule-failed", "rule-failed"], id="any-rule"),
    pytest.param({"fail_on": "sev1"}, THREE, None, ["rule-failed"], id="a-rule-of-severity-1"),
    pytest.param({"fail_on": "sev2"}, summary(RUDE), None, [], id="severity-3-is-not-covered-by-sev2"),
    pytest.param({"severity_1": {"max": 0}}, THREE, None, ["severity-1-over"], id="severity-1"),
    pytest.param({"severity_1": {"max": 1}}, THREE, None, [], id="severity-1-within"),
    pytest.param({"rules": {"polite": {"max_failed": 0}}}, THREE, None, ["rule-over"], id="one-rule"),
    pytest.param({"rules": {"polite": {"max_failed": 1}}}, THREE, None, [], id="one-rule-within"),
    pytest.param(
        {"rules": {"gone": {"max_failed": 1}}}, THREE, None, ["rule-unknown"], id="a-rule-not-judged"
    ),
    pytest.param({"pass_rate": {"min": 0.3}}, THREE, None, ["pass-rate-low"], id="rate-lower-bound"),
    pytest.param({"pass_rate": {"min": 0.3, "figure": "share"}}, THREE, None, [], id="rate-share-within"),
    pytest.param(
        {"pass_rate": {"min": 0.4, "figure": "share"}}, THREE, None, ["pass-rate-low"], id="rate-share"
    ),
    pytest.param(
        {"pass_rate": {"min": 0.1}, "faults": {"max": 1}},
        summary(LOST),
        None,
        ["pass-rate-unknown", "nothing-judged"],
        id="no-rate",
    ),
    pytest.param({}, summary(LOST, PASSED), None, ["without-verdict"], id="a-fault"),
    pytest.param({}, summary(PASSED, planned=2), None, ["without-verdict"], id="one-not-held"),
    pytest.param({}, summary(conversation(1, "derailed"), PASSED), None, ["without-verdict"], id="derailed"),
    pytest.param({"faults": {"max": 1}}, summary(LOST, PASSED), None, [], id="faults-within"),
    pytest.param(
        {"faults": {"max_share": 0.5}}, summary(LOST, PASSED), None, [], id="share-of-faults-within"
    ),
    pytest.param(
        {"faults": {"max_share": 0.4}}, summary(LOST, PASSED), None, ["without-verdict"], id="share-of-faults"
    ),
    pytest.param({"min_judged": 3}, summary(PASSED, PASSED), None, ["too-few-judged"], id="too-few"),
    pytest.param({"min_judged": 2}, summary(PASSED, PASSED), None, [], id="enough"),
    pytest.param(
        {"unclear": {"max": 0}, "faults": {"max": 9}},
        summary(UNSURE, PASSED),
        None,
        ["unclear-over"],
        id="unclear",
    ),
    pytest.param(
        {"unclear": {"max_share": 0.25}, "faults": {"max": 9}},
        summary(UNSURE, PASSED),
        None,
        [],
        id="unclear-within",
    ),
    pytest.param(
        {"cost": {"max_usd": 1}}, summary(PASSED, usage=(spent(1.5),)), None, ["cost-over"], id="cost"
    ),
    pytest.param({"cost": {"max_usd": 2}}, summary(PASSED, usage=(spent(1.5),)), None, [], id="cost-within"),
    pytest.param(
        {"cost": {"max_usd": 2}}, summary(PASSED, usage=(spent(1, 3),)), None, ["cost-unknown"], id="no-price"
    ),
    pytest.param(
        {"cost": {"max_usd": 2}}, summary(PASSED, usage=(spent(3, 3),)), None, ["cost-over"], id="surely-over"
    ),
    pytest.param({"calibration": {}}, summary(PASSED), None, [], id="no-judge"),
    pytest.param(
        {"calibration": {}}, summary(PASSED), judge(None), ["judge-uncalibrated"], id="uncalibrated"
    ),
    pytest.param(
        {"calibration": {"min_labels": 51}},
        summary(PASSED),
        judge(calibration()),
        ["judge-uncalibrated"],
        id="too-few-labels",
    ),
    pytest.param(
        {"calibration": {}}, summary(PASSED), judge(calibration(), stale=True), ["judge-stale"], id="stale"
    ),
    pytest.param(
        {"calibration": {"min_agreement": 0.8, "min_kappa": 0.6, "max_false_passes": 2}},
        summary(PASSED),
        judge(calibration()),
        ["judge-disagrees"],
        id="agreement",
    ),
    pytest.param(
        {"calibration": {"min_agreement": 0.79, "min_kappa": 0.7, "max_false_passes": 2}},
        summary(PASSED),
        judge(calibration()),
        [],
        id="calibrated",
    ),
    pytest.param(
        {"calibration": {"min_kappa": 0.1, "max_false_passes": 1}},
        summary(PASSED),
        judge(calibration(kappa=None)),
        ["judge-disagrees", "judge-disagrees"],
        id="kappa-undefined-and-false-passes",
    ),
]


@pytest.mark.parametrize(("gates", "found", "known", "codes"), RED)
def test_every_red_gate_has_its_code_and_a_message_with_the_figures(
    gates: dict[str, Any], found: Summary, known: dict[str, Any] | None, codes: list[str]
) -> None:
    # Where a threshold of the agent's is tried, what any rule does is not asked.
    agents = {"pass_rate", "severity_1", "rules"} & set(gates)
    spec = GatesSpec.model_validate({**({"fail_on": "none"} if agents else {}), **gates})
    reasons = gates_of(found, spec, known)["reasons"]
    assert [reason["code"] for reason in reasons] == codes
    assert all(reason["message"] and reason["exit_code"] == CODES[reason["code"]].exit for reason in reasons)


def test_every_code_is_reached_by_one_of_these() -> None:
    reached = {code for param in RED for code in param.values[3]}
    assert reached == set(CODES)


def test_every_gate_is_listed_whether_it_is_red_or_green() -> None:
    spec = GatesSpec.model_validate(
        {"fail_on": "sev1", "pass_rate": {"min": 0.9}, "min_judged": 2, "cost": {"max_usd": 5}}
    )
    checked = {gate["gate"]: gate["red"] for gate in gates_of(THREE, spec)["checked"]}
    assert checked == {
        "fail_on": True,
        "pass_rate": True,
        "cost": False,
        "min_judged": False,
        "faults": False,
    }


def test_a_reason_of_the_agents_outranks_one_of_ours_and_an_interruption_both() -> None:
    def code_of(*exits: int, interrupted: bool = False) -> int:
        return exit_code({"reasons": [{"exit_code": one} for one in exits]}, interrupted=interrupted)

    assert code_of() == 0
    assert code_of(OURS, OURS) == 3
    assert code_of(OURS, AGENT) == 1
    assert code_of(OURS, AGENT, interrupted=True) == 130


def test_a_run_of_which_nothing_is_known_is_never_green() -> None:
    lenient = GatesSpec.model_validate(
        {"fail_on": "none", "severity_1": {"max": 99}, "faults": {"max_share": 0.99}, "unclear": {"max": 99}}
    )
    for found in (summary(planned=0), summary(planned=3), summary(LOST, LOST), summary(UNSURE)):
        assert gates_of(found, lenient)["reasons"]


def test_the_message_of_a_rate_says_of_how_many_and_how_far_it_may_be_off() -> None:
    spec = GatesSpec.model_validate({"fail_on": "none", "pass_rate": {"min": 0.9}})
    (gate,) = [gate for gate in check_gates(THREE, spec) if gate.gate == "pass_rate"]
    assert gate.message == (
        "the pass rate's lower bound is 6.15 %, and 90 % is asked for: 1 of 3 passed, 33.3 % "
        "(95 % interval 6.15 % to 79.2 %)"
    )


def test_rules_that_failed_are_one_line_and_every_other_reason_has_its_own() -> None:
    assert reason_lines(summary(HARMED, RUDE, LOST)) == [
        ("rule-failed", "2 rules failed: own-rows, polite"),
        ("without-verdict", "1 of 3 planned conversations has no verdict: 1 infra-fault; the limit is 0"),
    ]


def test_the_last_line_names_the_codes_where_it_is_not_a_rule_that_failed() -> None:
    from dataclasses import replace

    def line(found: Summary, **gates: Any) -> str:
        return exit_line(replace(found, gates=gates_of(found, GatesSpec.model_validate(gates))))

    low = {"fail_on": "none", "pass_rate": {"min": 0.9}}
    assert line(THREE, **low) == "exit 1: the agent broke a gate: pass-rate-low"
    assert line(THREE) == "exit 1: the agent broke a rule"
    assert line(RUDE_ONLY, fail_on="sev1") == "exit 0: every gate is green"
    assert line(summary(PASSED), min_judged=2) == "exit 3: there is not enough to go by: too-few-judged"


RUDE_ONLY = summary(PASSED, RUDE)


@pytest.mark.parametrize(
    ("gates", "says"),
    [
        pytest.param({"fail_on": "none"}, "no failure of the agent could turn a run red", id="never-red"),
        pytest.param({"faults": {}}, "give either max or max_share", id="no-limit"),
        pytest.param(
            {"faults": {"max": 1, "max_share": 0.1}}, "give either max or max_share", id="two-limits"
        ),
        pytest.param({"faults": {"max_share": 1}}, "less than 1", id="a-share-that-all-meet"),
        pytest.param({"pass_rate": {"min": 0}}, "greater than 0", id="a-rate-that-all-meet"),
        pytest.param({"severity_1": {"max": True}}, "valid integer", id="true-is-no-number"),
        pytest.param({"pass_rat": {"min": 1}}, "not permitted", id="unknown"),
    ],
)
def test_a_gate_that_could_never_be_red_is_refused(gates: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        GatesSpec.model_validate(gates)


def test_the_command_line_changes_fail_on_and_no_threshold() -> None:
    suite = GatesSpec.model_validate({"pass_rate": {"min": 0.9}})
    assert with_fail_on(suite, "sev1") == GatesSpec.model_validate(
        {"fail_on": "sev1", "pass_rate": {"min": 0.9}}
    )
    assert with_fail_on(suite, None) is suite
    with pytest.raises(UsageError, match=r"--fail-on none: with `fail_on: none` no failure of the agent"):
        with_fail_on(GatesSpec(), "none")


def test_a_limit_for_a_rule_that_judges_nothing_is_refused_with_its_line(tmp_path: Path) -> None:
    shipped = ROOT / "seeds" / "clinic"
    for path in shipped.iterdir():
        if path.name != "suite.yaml":
            (tmp_path / path.name).symlink_to(path)
    text = (shipped / "suite.yaml").read_text(encoding="utf-8").rstrip()
    gates = "\ngates:\n  fail_on: sev2\n  rules:\n    {name}: {{max_failed: 1}}\n"
    suite = tmp_path / "suite.yaml"
    suite.write_text(text + gates.format(name="identity-proven"))
    assert load_suite(tmp_path).spec.gates.rules["identity-proven"].max_failed == 1
    suite.write_text(text + gates.format(name="collateral"))
    assert load_suite(tmp_path).spec.gates.fail_on == "sev2"
    suite.write_text(text + gates.format(name="identity-prove"))
    line = len(suite.read_text().splitlines())
    with pytest.raises(UsageError, match=rf"suite\.yaml:{line}: gates\.rules names 'identity-prove'"):
        load_suite(tmp_path)
