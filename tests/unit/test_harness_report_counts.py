"""What the report counts: nothing twice, nothing silently left out."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, get_args

from hypothesis import given, settings
from hypothesis import strategies as st

from redteam_harness.evidence.ids import conversation_id, first_of, in_order
from redteam_harness.report.data import REPORT_VERSION, report_data
from redteam_harness.report.summary import Finished, Outcome, Summary, summarise
from redteam_rubrics.calibration import Calibration, Pair, measure
from redteam_rubrics.statistics import simultaneous, wilson

if TYPE_CHECKING:
    from collections.abc import Sequence

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
STATUSES = ("pass", "fail", "unclear")
SEVERITIES = {"a": 1, "b": 2, "c": 3}


def verdict(rule: str, status: str, **more: Any) -> dict[str, Any]:
    facts = {"severity": SEVERITIES[rule], "vacuous": False, "findings": [], "why": "", "kind": "sql"}
    return {"rule": rule, "status": status, **facts, **more}


def one(number: int, outcome: Outcome, repetition: int = 1, **more: Any) -> Finished:
    facts: dict[str, Any] = {"case": "case", "persona": str(number), "disposition": "cooperative", **more}
    return Finished(
        id=conversation_id(number, repetition),
        repetition=repetition,
        outcome=outcome,
        turns=1,
        ending="ended",
        seconds=1.0,
        **facts,
    )


def summary(finished: Sequence[Finished], *, planned: int | None = None, **more: Any) -> Summary:
    return summarise(
        finished,
        notice="n",
        suite="s",
        run="r",
        planned=len(finished) if planned is None else planned,
        forks=0,
        interrupted=False,
        seconds=1.0,
        **more,
    )


VERDICTS = st.lists(
    st.builds(
        lambda rule, status, vacuous: verdict(rule, status, vacuous=vacuous and status == "pass"),
        st.sampled_from(sorted(SEVERITIES)),
        st.sampled_from(STATUSES),
        st.booleans(),
    ),
    max_size=3,
    unique_by=lambda said: said["rule"],
)


@st.composite
def held(draw: st.DrawFn) -> list[Finished]:
    """Any conversations of up to five plans with up to three repetitions, in any order."""
    names = draw(st.sets(st.tuples(st.integers(1, 5), st.integers(1, 3)), max_size=12))
    finished = [
        one(
            number,
            draw(st.sampled_from(OUTCOMES)),
            repetition,
            case=f"case-{number % 2}",
            disposition="angry" if number > 3 else "cooperative",
            verdicts=draw(VERDICTS),
        )
        for number, repetition in sorted(names)
    ]
    return draw(st.permutations(finished))


@settings(max_examples=80, deadline=None)
@given(finished=held(), missing=st.integers(0, 3))
def test_every_conversation_is_in_every_total_once(finished: list[Finished], missing: int) -> None:
    not_held = [conversation_id(90 + number) for number in range(missing)]
    found = summary(finished, planned=len(finished) + missing, not_held=not_held, repeat=3)
    data = report_data(found)
    outcomes = Counter(each.outcome for each in finished)
    rate = data["pass_rate"]
    assert data["version"] == REPORT_VERSION == 2
    assert data["outcomes"] == outcomes
    assert (rate["passed"], rate["judged"]) == (outcomes["pass"], outcomes["pass"] + outcomes["fail"])
    assert rate["judged"] + sum(rate["excluded"].values()) == data["planned"]
    for groups in data["groups"].values():
        assert sum(group["passed"] for group in groups) == rate["passed"]
        assert sum(group["judged"] for group in groups) == rate["judged"]
        left_out = sum((Counter(group["excluded"]) for group in groups), Counter[str]())
        assert left_out == Counter({n: c for n, c in rate["excluded"].items() if n != "not-held"})
    said = Counter(
        (each_verdict["rule"], each_verdict["status"]) for each in finished for each_verdict in each.verdicts
    )
    for rule in data["rules"]:
        name = rule["rule"]
        assert rule["failed"] == said[name, "fail"]
        assert rule["judged"] == said[name, "pass"] + said[name, "fail"]
        assert rule["unclear"] == said[name, "unclear"]
        assert rule["vacuous"] <= said[name, "pass"]
    assert sum(rule["judged"] + rule["unclear"] for rule in data["rules"]) == said.total()
    assert [each["id"] for each in data["conversations"]] == sorted(
        (each.id for each in finished), key=in_order
    )
    for each in data["pass_hat_k"]:
        assert (
            each["excluded"]
            + sum(Counter(first_of(one.id) for one in finished if one.outcome in ("pass", "fail")).values())
            == len(finished) + missing
        )


@settings(max_examples=40, deadline=None)
@given(finished=held(), random=st.randoms(use_true_random=False))
def test_the_order_in_which_conversations_finished_changes_no_figure(
    finished: list[Finished], random: Any
) -> None:
    shuffled = list(finished)
    random.shuffle(shuffled)
    assert report_data(summary(finished, repeat=3)) == report_data(summary(shuffled, repeat=3))


@settings(max_examples=40, deadline=None)
@given(finished=held())
def test_no_severity_1_rule_ever_has_a_rate(finished: list[Finished]) -> None:
    for rule in report_data(summary(finished))["rules"]:
        assert "share" not in rule
        assert (rule["interval"] is None) == (rule["severity"] == 1 or rule["judged"] == rule["vacuous"])
        assert rule["p_adjusted"] is None


def test_faults_are_left_out_by_name_and_the_bounds_say_what_they_could_have_changed() -> None:
    outcomes: list[tuple[Outcome, int]] = [("pass", 6), ("fail", 2), ("infra-fault", 1), ("sim-fault", 1)]
    each = [outcome for outcome, times in outcomes for _ in range(times)]
    found = summary([one(n, outcome) for n, outcome in enumerate(each, start=1)], planned=12)
    rate = report_data(found)["pass_rate"]
    assert rate["excluded"] == {"infra-fault": 1, "not-held": 2, "sim-fault": 1}
    assert rate["bounds"] == {"if_all_failed": 6 / 12, "if_all_passed": 10 / 12}
    assert found.rate.interval == wilson(6, 8)


def test_repetitions_and_the_same_persona_in_the_same_case_are_one_cluster() -> None:
    finished = [
        one(n, "fail" if n == 1 else "pass", repetition, persona="7" if n > 4 else str(n))
        for n in range(1, 6)
        for repetition in (1, 2)
    ]
    found = summary([*finished, one(6, "pass", persona="7")], repeat=2)
    assert (found.rate.judged, found.rate.clusters) == (11, 5)
    assert found.rate.interval is not None
    plain = wilson(9, 11)
    assert plain is not None
    assert found.rate.interval.low < plain.low


def test_the_intervals_of_rules_hold_together() -> None:
    said = [verdict("a", "pass"), verdict("b", "fail"), verdict("c", "pass", vacuous=True)]
    more = [verdict("b", "pass"), verdict("c", "pass")]
    found = summary([one(1, "fail", verdicts=said), one(2, "pass", verdicts=more)])
    by_name = {rule["rule"]: rule for rule in report_data(found)["rules"]}
    alone = wilson(1, 2, simultaneous(2))
    assert alone is not None
    assert by_name["b"]["interval"] == {
        "of": "failed",
        "n": 2,
        "method": "wilson",
        "confidence": simultaneous(2),
        "low": alone.low,
        "high": alone.high,
    }
    # A pass with nothing to fail on supports nothing, so it is not among those that the interval is of.
    assert (by_name["c"]["judged"], by_name["c"]["vacuous"], by_name["c"]["interval"]["n"]) == (2, 1, 1)
    assert [rule["kind"] for rule in by_name.values()] == ["sql"] * 3


def test_pass_hat_k_is_there_only_with_repetitions_and_undefined_where_a_fault_took_one() -> None:
    finished = [one(1, "pass"), one(1, "pass", 2), one(2, "pass"), one(2, "infra-fault", 2)]
    assert report_data(summary(finished[::2]))["pass_hat_k"] == []
    first, second = report_data(summary(finished, repeat=2))["pass_hat_k"]
    assert (first["share"], first["cases"]) == (1.0, 2)
    assert (second["share"], second["interval"]["low"], second["excluded"]) == (None, None, 1)
    assert second["bounds"] == {"if_all_failed": 0.5, "if_all_passed": 1.0}


def test_a_plan_of_which_nothing_was_held_leaves_pass_hat_k_undefined() -> None:
    finished = [one(1, "pass"), one(1, "pass", 2)]
    (first, _) = summary(finished, planned=4, not_held=["c002", "c002.2"], repeat=2).reliability
    assert (first.share, first.tasks, first.bounds) == (None, 2, (0.5, 1.0))


def test_a_judge_is_named_with_its_calibration_and_whether_that_is_of_another_judge() -> None:
    asked = {"model": "m", "prompt": "p1", "votes": {"pass": 1}}
    finished = [
        one(n, "pass", verdicts=[verdict("b", "pass", asked=asked), verdict("c", "pass")]) for n in (1, 2)
    ]
    pair = Pair(severity=2, human="pass", judge="pass", length=10)
    old = Calibration(
        rule="b",
        model="m",
        prompt="p0",
        at="2026-01-01T00:00:00Z",
        who=("x",),
        runs=(),
        labels="",
        figures=measure([pair]),
    )
    assert report_data(summary([one(1, "pass")]))["judge"] is None
    none, stale = summary(finished).judge, summary(finished, calibrations=[old]).judge
    assert none == {
        "model": "m",
        "rules": [{"rule": "b", "model": "m", "prompt": "p1", "calibration": None, "stale": False}],
    }
    assert stale is not None
    assert (stale["rules"][0]["stale"], stale["rules"][0]["calibration"]["prompt"]) == (True, "p0")


def test_names_sort_as_people_count() -> None:
    numbers = [(9, 1), (10, 1), (10, 2), (10, 10), (999, 1), (1000, 1)]
    names = [conversation_id(*number) for number in numbers]
    assert names == ["c009", "c010", "c010.2", "c010.10", "c999", "c1000"]
    assert sorted(set(names), key=in_order) == names
    assert [first_of(name) for name in names] == ["c009", "c010", "c010", "c010", "c999", "c1000"]
