"""Whether a candidate is better: what the verdict rests on, and how often it may be wrong."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import finished, summary, verdict

from redteam_harness.comparing.compare import Stated, compare
from redteam_harness.comparing.parity import check_parity, comparable_parts
from redteam_rubrics.statistics import mcnemar
from redteam_rubrics.statistics.bootstrap import difference_bootstrap
from redteam_rubrics.statistics.pairs import Pairs
from redteam_rubrics.statistics.power import Churn, churn_of, mcnemar_power, pairs_needed
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_harness.comparing.compare import Comparison
    from redteam_harness.report.summary import Finished

STATED = Stated(min_effect=0.05, alpha=0.05, before=True)


def held(outcomes: str, *, severity: int = 2, repeats: int = 1) -> list[Finished]:
    """Conversations from a text: `p` passed, `f` failed a rule, `i` is a fault of ours."""
    found = []
    for number, letter in enumerate(outcomes):
        outcome = {"p": "pass", "f": "fail", "i": "infra-fault"}[letter]
        status = {"p": "pass", "f": "fail"}.get(letter)
        found.append(
            finished(
                f"c{number:03}",
                outcome=outcome,
                persona=str(number // repeats),
                repetition=number % repeats + 1,
                verdicts=[verdict("r", status, severity=severity)] if status else [],
            )
        )
    return found


def compared(base: str, candidate: str, **more: Any) -> Comparison:
    return compare(summary(held(base, **more)), summary(held(candidate, **more)), STATED)


def test_many_that_improve_and_none_that_regress_is_an_improvement() -> None:
    found = compared("f" * 12 + "p" * 28, "p" * 40)
    assert (found.result, found.pairs) == ("improved", Pairs(28, 0, 12, 0))
    assert found.difference is not None
    assert found.difference.low > 0
    assert compared("p" * 40, "f" * 12 + "p" * 28).result == "regressed"


def test_what_is_significant_but_smaller_than_stated_is_no_improvement() -> None:
    found = compared("f" * 20 + "p" * 980, "p" * 1000)
    assert found.test is not None
    assert found.test.p < 0.05
    assert found.result == "unchanged"  # the whole interval lies below 5 points


def test_few_pairs_are_inconclusive_and_many_alike_are_unchanged() -> None:
    few = compared("ppfp", "pfpp")
    assert (few.result, "redteam power" in few.reasons[0]) == ("inconclusive", True)
    assert compared("p" * 300 + "f" * 60, "p" * 300 + "f" * 60).result == "unchanged"


@pytest.mark.parametrize(("base", "candidate"), [("", ""), ("iii", "ppp"), ("ppp", "iii")])
def test_runs_without_a_common_verdict_are_inconclusive(base: str, candidate: str) -> None:
    found = compared(base, candidate)
    assert (found.result, found.test, found.difference) == ("inconclusive", None, None)


def test_a_new_severity_1_failure_is_a_regression_whatever_the_rate_says() -> None:
    base = held("f" * 30 + "p" * 30)
    better = [
        *held("p" * 59),
        finished("c059", persona="59", outcome="fail", verdicts=[verdict("harm", "fail")]),
    ]
    found = compare(summary(base), summary(better), STATED)
    assert found.result == "regressed"
    assert [one["rule"] for one in found.severity_1] == ["harm"]
    # The same failure on both sides is nothing new.
    assert compared("f", "f", severity=1).result == "inconclusive"
    assert compared("f", "f", severity=1).severity_1 == ()
    assert [one["rule"] for one in compared("f", "p", severity=1).healed] == ["r"]


def test_a_severity_1_failure_counts_although_the_base_has_no_verdict_there() -> None:
    assert compared("i", "f", severity=1).result == "regressed"


def test_faults_of_ours_are_in_no_pair_and_are_named() -> None:
    found = compared("ppiip", "pipif")
    assert found.pairs.n == 2
    assert found.excluded == {
        "candidate: infra-fault": 1,
        "base: infra-fault": 1,
        "base: infra-fault; candidate: infra-fault": 1,
    }
    longer = compare(summary(held("pp")), summary(held("ppp"), planned=5), STATED)
    assert longer.excluded == {"only in the candidate": 1, "candidate: not finished": 2}


def test_an_effect_of_few_personas_who_came_often_is_not_taken_for_one_of_many() -> None:
    # One persona of 12 repetitions changed; over whole personas that is one, and says little.
    found = compared("f" * 12 + "p" * 24, "p" * 36, repeats=12)
    assert found.test is not None
    assert found.test.p < 0.05
    assert (found.result, "few personas" in found.reasons[0]) == ("inconclusive", True)


def test_pairs_that_differ_are_listed_the_worse_first_with_their_rules() -> None:
    found = compared("fpp", "pff")
    assert [(one.candidate, one.better, one.rules) for one in found.discordant] == [
        ("c001", False, ("r",)),
        ("c002", False, ("r",)),
        ("c000", True, ("r",)),
    ]
    (rule,) = found.rules
    assert (rule.rule, rule.pairs) == ("r", Pairs(0, 2, 1, 0))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("pfi"), st.sampled_from("pfi")), max_size=25), st.randoms())
def test_order_changes_nothing_and_turning_it_round_turns_the_verdict(
    pairs: list[tuple[str, str]], shuffle: random.Random
) -> None:
    base, candidate = ("".join(side) for side in zip(*pairs, strict=True)) if pairs else ("", "")
    found = compared(base, candidate)
    one, other = held(base), held(candidate)
    shuffle.shuffle(one)
    shuffle.shuffle(other)
    assert compare(summary(one), summary(other), STATED) == found
    back = compared(candidate, base)
    turned = {"improved": "regressed", "regressed": "improved"}
    assert back.result == turned.get(found.result, found.result)
    assert found.pairs.n + sum(found.excluded.values()) == len(pairs)


def test_twenty_pairs_of_runs_of_one_agent_are_not_called_different_more_often_than_stated() -> None:
    rng = random.Random(7)
    hard = [rng.betavariate(8, 2) for _ in range(220)]

    def run() -> str:
        return "".join("p" if rng.random() < rate else "f" for rate in hard)

    results = [compared(run(), run()).result for _ in range(20)]
    assert sum(result in ("improved", "regressed") for result in results) <= 2  # more: chance of 1 in 13


@pytest.mark.parametrize("effect", [0.1, -0.1])
def test_an_effect_is_found_at_the_size_that_power_promises(effect: float) -> None:
    rng = random.Random(11)
    churn = churn_of(0.8, effect)
    n = pairs_needed(churn, alpha=STATED.alpha, power=0.8)
    assert n is not None
    found = 0
    for _ in range(60):
        base = "".join("p" if rng.random() < 0.8 else "f" for _ in range(n))
        candidate = "".join("p" if rng.random() < 0.8 + effect else "f" for _ in range(n))
        found += compared(base, candidate).result == ("improved" if effect > 0 else "regressed")
    assert found >= 39  # of 60 at power 0.8, less would happen once in a thousand times


def test_power_is_what_enumerating_every_outcome_gives() -> None:
    from math import comb

    churn, n, alpha = Churn(0.2, 0.05), 12, 0.05
    exact = sum(
        comb(n, up) * comb(n - up, down) * 0.2**up * 0.05**down * 0.75 ** (n - up - down)
        for up in range(n + 1)
        for down in range(n - up + 1)
        if mcnemar(Pairs(n - up - down, down, up, 0)).p <= alpha
    )
    assert mcnemar_power(n, churn, alpha=alpha) == pytest.approx(exact, abs=1e-7)


def test_power_of_no_difference_is_at_most_alpha_and_no_number_of_pairs_is_enough() -> None:
    assert 0 < mcnemar_power(200, Churn(0.1, 0.1), alpha=0.05) <= 0.05
    assert pairs_needed(Churn(0.1, 0.1), alpha=0.05, power=0.8) is None
    assert mcnemar_power(50, Churn(0, 0), alpha=0.05) == 0


def test_rates_that_are_none_are_refused() -> None:
    with pytest.raises(UsageError, match=r"give 1\.05, which is no rate"):
        churn_of(0.95, 0.1)


def test_the_bootstrap_of_a_difference_says_nothing_where_drawing_says_nothing() -> None:
    assert difference_bootstrap([]) is None
    assert difference_bootstrap([(1, 2), (1, 2)]) is None
    interval = difference_bootstrap([(1, 1)] * 10 + [(0, 1)] * 30)
    assert interval is not None
    assert 0.1 < interval.low < 0.25 < interval.high < 0.45


def test_runs_that_differ_are_refused_by_name_and_only_what_is_named_is_allowed() -> None:
    base = {"key": "1", "rules": "a" * 64, "turns": 12, "actor": "scripted", "seeds": ["x"]}
    other = {**base, "key": "2", "rules": "b" * 64, "turns": 10}
    with pytest.raises(UsageError) as refused:
        check_parity(base, other, allowed=["rules"])
    assert "turns" in str(refused.value)
    assert "12, then 10" in str(refused.value)
    assert str(refused.value).endswith("--allow turns")
    assert check_parity(base, other, allowed=["rules", "turns"]) == ["rules", "turns"]
    assert check_parity(base, base, allowed=[]) == []
    with pytest.raises(UsageError, match="there is no such part"):
        check_parity(base, other, allowed=["rulez"])


def test_a_replay_of_recorded_lines_pairs_with_the_recorded_run_and_with_no_third_one() -> None:
    def run(name: str, replay: dict[str, Any] | None = None) -> dict[str, Any]:
        return {"run": name, "comparability": {"key": "k"}, **({"replay": replay} if replay else {})}

    deployed, other = run("deployed"), run("other")
    replays = [run(name, {"of": "deployed", "level": 2}) for name in ("r1", "r2")]
    for pair in ((deployed, other), (deployed, replays[0]), (replays[0], replays[1]), (replays[0], deployed)):
        assert check_parity(*comparable_parts(*pair), allowed=[]) == []
    for pair in ((other, replays[0]), (replays[0], run("r3", {"of": "other", "level": 2}))):
        with pytest.raises(UsageError, match=r"lines .*those of deployed") as refused:
            check_parity(*comparable_parts(*pair), allowed=[])
        assert str(refused.value).endswith("--allow lines")
        assert check_parity(*comparable_parts(*pair), allowed=["lines"]) == ["lines"]
    freely = run("r4", {"of": "deployed", "level": 3})
    assert check_parity(*comparable_parts(other, freely), allowed=[]) == []
