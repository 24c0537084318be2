from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from redteam_rubrics import Finding, Verdict, outcome_of

VERDICTS = st.builds(
    Verdict,
    rule=st.text(min_size=1),
    severity=st.sampled_from([1, 2, 3]),
    status=st.sampled_from(["pass", "fail", "unclear"]),
    source=st.sampled_from(["assertion", "judge", "human"]),
    reason=st.text(),
    findings=st.lists(
        st.builds(
            Finding,
            text=st.text(),
            table=st.none() | st.text(min_size=1),
            op=st.none() | st.just("insert"),
            key=st.none() | st.dictionaries(st.text(), st.none() | st.text(), min_size=1),
            columns=st.lists(st.text()).map(tuple),
            event=st.none() | st.integers(min_value=0),
        )
    ).map(tuple),
    vacuous=st.booleans(),
)


@given(st.lists(VERDICTS), VERDICTS)
def test_no_further_verdict_turns_a_failure_into_anything_else(
    verdicts: list[Verdict], more: Verdict
) -> None:
    if outcome_of(verdicts) == "fail":
        assert outcome_of([*verdicts, more]) == "fail"


@given(st.lists(VERDICTS).flatmap(lambda found: st.tuples(st.just(found), st.permutations(found))))
def test_the_order_of_verdicts_makes_no_difference(orders: tuple[list[Verdict], list[Verdict]]) -> None:
    assert outcome_of(orders[0]) == outcome_of(orders[1])


@given(st.lists(VERDICTS, min_size=1))
def test_only_passes_add_up_to_a_pass(verdicts: list[Verdict]) -> None:
    assert (outcome_of(verdicts) == "pass") == all(verdict.status == "pass" for verdict in verdicts)


@given(VERDICTS)
def test_an_unclear_verdict_is_a_fault_of_the_judge_unless_another_one_fails(verdict: Verdict) -> None:
    unclear = replace(verdict, status="unclear")
    assert outcome_of([unclear]) == "judge-fault"
    assert outcome_of([unclear, replace(verdict, status="fail")]) == "fail"


def test_nothing_checked_is_no_pass() -> None:
    assert outcome_of([]) == "judge-fault"


@given(VERDICTS)
def test_a_verdict_survives_its_json(verdict: Verdict) -> None:
    assert Verdict.from_json(verdict.to_json()) == verdict
