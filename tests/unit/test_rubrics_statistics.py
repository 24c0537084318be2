"""The statistics, against published values and against a second way to each figure."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redteam_rubrics.statistics import (
    Cluster,
    Pairs,
    Rate,
    Task,
    bonferroni,
    cluster_bootstrap,
    clustered,
    holm,
    mcnemar,
    paired_difference,
    pass_hat_k,
    percent,
    rate_of,
    simultaneous,
    wilson,
)
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).resolve().parents[2] / "docs"
SOME = settings(max_examples=60, deadline=None)
CLUSTER = st.integers(1, 6).flatmap(lambda n: st.builds(Cluster, st.integers(0, n), st.just(n)))
CLUSTERS = st.lists(CLUSTER, min_size=1, max_size=12)


# Newcombe, Statistics in Medicine 17 (1998), 857-872, table I, method 3.
@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(passed: int, n: int, low: float, high: float) -> None:
    interval = wilson(passed, n)
    assert interval is not None
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_a_higher_confidence_widens_the_interval() -> None:
    usual, wide = wilson(14, 20), wilson(14, 20, confidence=0.99)
    assert usual is not None
    assert wide is not None
    assert wide.low < usual.low < usual.high < wide.high


@SOME
@given(n=st.integers(2, 400), data=st.data())
def test_one_more_that_passed_moves_both_ends_up(n: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(0, n - 1))
    fewer, more = wilson(passed, n), wilson(passed + 1, n)
    assert fewer is not None
    assert more is not None
    assert fewer.low < more.low
    assert fewer.high < more.high
    assert fewer.low <= passed / n <= fewer.high


def test_nothing_counted_has_no_interval() -> None:
    assert wilson(0, 0) is None
    assert clustered([]) is None
    assert clustered([Cluster(0, 0)]) is None


@pytest.mark.parametrize(("passed", "n"), [(3, 2), (-1, 2)])
def test_an_impossible_rate_is_refused(passed: int, n: int) -> None:
    with pytest.raises(InternalError):
        wilson(passed, n)
    with pytest.raises(InternalError):
        clustered([Cluster(passed, n), Cluster(1, 1)])


@SOME
@given(passed=st.integers(0, 40), failed=st.integers(0, 40))
def test_one_conversation_in_each_cluster_is_no_clustering(passed: int, failed: int) -> None:
    clusters = [Cluster(1, 1)] * passed + [Cluster(0, 1)] * failed
    assert clustered(clusters) == wilson(passed, passed + failed)


@SOME
@given(clusters=CLUSTERS, random=st.randoms(use_true_random=False))
def test_a_clustered_interval_holds_its_rate_is_never_narrower_and_knows_no_order(
    clusters: list[Cluster], random: object
) -> None:
    passed, n = sum(one.passed for one in clusters), sum(one.n for one in clusters)
    found, plain = clustered(clusters), wilson(passed, n)
    assert found is not None
    assert plain is not None
    assert found.low <= passed / n <= found.high
    assert found.low <= plain.low + 1e-12
    assert found.high >= plain.high - 1e-12
    shuffled = list(clusters)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert clustered(shuffled) == found


@pytest.mark.parametrize("people", [2, 5, 40])
def test_clusters_that_all_have_the_same_share_are_as_good_as_strangers(people: int) -> None:
    # The formula for a number that need not be whole, where it is whole: scipy's is the second way.
    found, plain = clustered([Cluster(1, 2)] * people), wilson(people, 2 * people)
    assert found is not None
    assert plain is not None
    assert found == pytest.approx(plain, abs=1e-12)


def test_five_repetitions_that_always_agree_say_no_more_than_one() -> None:
    agree = [Cluster(5, 5)] * 16 + [Cluster(0, 5)] * 4
    found, once, naive = clustered(agree), wilson(16, 20), wilson(80, 100)
    assert found is not None
    assert once is not None
    assert naive is not None
    assert found.low == pytest.approx(once.low, abs=0.02)
    assert found.low <= once.low < naive.low


def test_where_all_passed_each_cluster_counts_once_because_nothing_says_more() -> None:
    found, once = clustered([Cluster(5, 5)] * 20), wilson(20, 20)
    assert found is not None
    assert once is not None
    assert found.high == 1
    assert once.low - 0.02 < found.low <= once.low


def test_a_single_cluster_counts_as_one_conversation() -> None:
    found, one = clustered([Cluster(5, 5)]), wilson(1, 1)
    assert found is not None
    assert one is not None
    assert found == pytest.approx(one, abs=1e-12)


def test_the_effective_number_is_that_of_korn_and_graubard() -> None:
    from scipy.stats import t

    clusters = [Cluster(3, 3)] * 10 + [Cluster(1, 4)] * 5 + [Cluster(2, 5)] * 3
    x, n = (numpy.array(column) for column in zip(*clusters, strict=True))
    share = x.sum() / n.sum()
    design_effect = numpy.square(x - share * n).sum() / n.sum() ** 2 / (share * (1 - share) / n.sum())
    effective = n.sum() / design_effect * (t.ppf(0.975, n.sum() - 1) / t.ppf(0.975, len(n) - 1)) ** 2
    assert 1 < effective < n.sum()
    found = clustered(clusters)
    assert found is not None
    # Both ends of Wilson's interval are where the score test is exactly at its limit.
    for end in found:
        assert abs(share - end) / math.sqrt(end * (1 - end) / effective) == pytest.approx(1.959964, abs=1e-5)


@pytest.mark.parametrize("share", [0.5, 0.8])
@pytest.mark.parametrize("correlation", [0.3, 0.7])
def test_clustered_intervals_hold_the_truth_where_plain_ones_do_not(share: float, correlation: float) -> None:
    # Exact: all outcomes of eight people, each held four times, with beta-binomial chances.
    people, times = 8, 4
    a, b = share * (1 / correlation - 1), (1 - share) * (1 / correlation - 1)
    chances = [
        math.comb(times, c) * math.exp(_log_beta(c + a, times - c + b) - _log_beta(a, b))
        for c in range(times + 1)
    ]
    held = plain_held = 0.0
    for outcome in itertools.combinations_with_replacement(range(times + 1), people):
        counts = [outcome.count(c) for c in range(times + 1)]
        ways = math.factorial(people) / math.prod(map(math.factorial, counts))
        chance = ways * math.prod(p**count for p, count in zip(chances, counts, strict=True))
        found = clustered([Cluster(c, times) for c in outcome])
        plain = wilson(sum(outcome), people * times)
        assert found is not None
        assert plain is not None
        held += chance * (found.low <= share <= found.high)
        plain_held += chance * (plain.low <= share <= plain.high)
    assert held >= 0.92
    assert plain_held < 0.9


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def test_the_bootstrap_finds_the_ends_that_all_possible_draws_have() -> None:
    clusters = [Cluster(3, 3), Cluster(2, 3), Cluster(0, 3), Cluster(1, 2), Cluster(4, 4)]
    draws = sorted(
        sum(one.passed for one in draw) / sum(one.n for one in draw)
        for draw in itertools.product(clusters, repeat=len(clusters))
    )
    found = cluster_bootstrap(clusters)
    assert found is not None
    assert found.low == pytest.approx(numpy.quantile(draws, 0.025), abs=0.03)
    assert found.high == pytest.approx(numpy.quantile(draws, 0.975), abs=0.03)


def test_the_bootstrap_is_the_same_again_in_any_order_and_says_nothing_of_no_variation() -> None:
    clusters = [Cluster(3, 3)] * 6 + [Cluster(1, 3)] * 4
    assert cluster_bootstrap(clusters) == cluster_bootstrap(clusters[::-1])
    assert cluster_bootstrap([Cluster(3, 3)] * 9) is None
    assert cluster_bootstrap([Cluster(1, 3)]) is None


def test_bootstrap_and_formula_agree_where_there_is_much() -> None:
    clusters = [Cluster(3, 3)] * 120 + [Cluster(2, 3)] * 50 + [Cluster(0, 3)] * 30
    found, check = clustered(clusters), cluster_bootstrap(clusters)
    assert found is not None
    assert check is not None
    assert found == pytest.approx(check, abs=0.01)


def _by_choosing(outcomes: Sequence[bool], k: int) -> Fraction:
    choices = list(itertools.combinations(outcomes, k))
    return Fraction(sum(all(choice) for choice in choices), len(choices))


@SOME
@given(
    tasks=st.lists(st.lists(st.booleans(), min_size=4, max_size=6), min_size=1, max_size=5),
    k=st.integers(1, 4),
)
def test_pass_hat_k_is_the_share_of_choices_of_k_tries_without_a_failure(
    tasks: list[list[bool]], k: int
) -> None:
    found = pass_hat_k([Task(n, sum(tries), len(tries)) for n, tries in enumerate(tasks)], k)
    assert found.share == float(sum(_by_choosing(tries, k) for tries in tasks) / len(tasks))
    assert found.interval is not None
    assert found.interval.low <= found.share <= found.interval.high
    assert found.bounds == (found.share, found.share)


@SOME
@given(
    tasks=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), min_size=1, max_size=6)
)
def test_pass_hat_k_never_rises_with_k_and_lies_within_its_bounds(tasks: list[tuple[int, int, int]]) -> None:
    made = [
        Task(number, passed, passed + failed, excluded)
        for number, (passed, failed, excluded) in enumerate(tasks)
    ]
    found = [pass_hat_k(made, k) for k in range(1, 6)]
    shares = [one.share for one in found if one.share is not None]
    assert shares == sorted(shares, reverse=True)
    for one in found:
        enough = all(task.judged >= one.k for task in made)
        assert (one.share is not None) == enough
        assert (one.interval is not None) == enough
        if one.share is not None:
            assert one.bounds is not None
            assert one.bounds.if_all_failed - 1e-12 <= one.share <= one.bounds.if_all_passed + 1e-12


def test_pass_hat_k_is_undefined_as_soon_as_one_task_has_too_few_tries_that_count() -> None:
    found = pass_hat_k([Task("a", 3, 3), Task("b", 2, 2, excluded=1)], 3)
    assert (found.share, found.interval, found.tasks, found.excluded) == (None, None, 2, 1)
    assert found.bounds == (0.5, 1.0)
    assert pass_hat_k([Task("a", 3, 3)], 4).bounds is None
    assert pass_hat_k([], 1).share is None


def test_pass_hat_1_has_the_interval_of_the_pass_rate() -> None:
    tasks = [Task(n, passed, 3) for n, passed in enumerate([3, 3, 2, 3, 0, 1])]
    found = pass_hat_k(tasks, 1)
    rate = clustered([Cluster(task.passed, 3) for task in tasks])
    assert rate is not None
    assert found.interval == pytest.approx(rate, abs=1e-12)


@pytest.mark.parametrize("k", [0, -1])
def test_pass_hat_k_of_no_tries_is_refused(k: int) -> None:
    with pytest.raises(InternalError):
        pass_hat_k([Task("a", 1, 1)], k)


# Fagerland, Lydersen and Laake, BMC Medical Research Methodology 13:91 (2013): the exact and mid-p values of
# Bentur et al. 2009 and Cavo et al. 2012. Agresti, Categorical Data Analysis, table of approval ratings: the
# squared statistic is 17.36 on one degree of freedom, of which the exact value must be a near neighbour.
@pytest.mark.parametrize(
    ("pairs", "p", "mid_p"),
    [
        pytest.param(Pairs(1, 1, 7, 12), 0.0703, 0.0391, id="bentur"),
        pytest.param(Pairs(59, 6, 16, 80), 0.0525, 0.0347, id="cavo"),
    ],
)
def test_mcnemar_gives_the_published_values(pairs: Pairs, p: float, mid_p: float) -> None:
    found = mcnemar(pairs)
    assert (round(found.p, 4), round(found.mid_p, 4)) == (p, mid_p)


def test_mcnemar_is_near_its_chi_square_on_agrestis_approval_ratings() -> None:
    from scipy.stats import chi2

    pairs = Pairs(794, 150, 86, 570)
    squared = (pairs.improved - pairs.regressed) ** 2 / (pairs.improved + pairs.regressed)
    assert round(squared, 2) == 17.36
    assert mcnemar(pairs).mid_p == pytest.approx(float(chi2.sf(squared, 1)), rel=0.1)


@SOME
@given(regressed=st.integers(0, 9), improved=st.integers(0, 9))
def test_mcnemar_is_the_share_of_coin_flips_that_are_as_lopsided(regressed: int, improved: int) -> None:
    differ = regressed + improved
    heads = [flips.bit_count() for flips in range(2**differ)] if differ else [0]
    extreme = [count for count in heads if abs(2 * count - differ) >= abs(improved - regressed)]
    found = mcnemar(Pairs(5, regressed, improved, 7))
    assert found.p == pytest.approx(len(extreme) / len(heads))
    assert found.mid_p <= found.p
    assert found == pytest.approx(mcnemar(Pairs(0, improved, regressed, 0)))


# Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014), 2850-2875, Newcombe's interval.
def test_the_difference_of_pairs_has_newcombes_published_interval() -> None:
    found = paired_difference(Pairs(both=59, regressed=16, improved=6, neither=80))
    assert found is not None
    assert [round(value, 4) for value in found[:3]] == [-0.0621, -0.1186, -0.0046]
    assert found.n == 161


@SOME
@given(counts=st.tuples(*[st.integers(0, 30)] * 4).filter(any))
def test_a_difference_lies_in_its_interval_and_turns_round_with_the_pairs(counts: tuple[int, ...]) -> None:
    pairs = Pairs(*counts)
    found = paired_difference(pairs)
    turned = paired_difference(Pairs(pairs.both, pairs.improved, pairs.regressed, pairs.neither))
    assert found is not None
    assert turned is not None
    assert -1 <= found.low <= found.difference <= found.high <= 1
    assert (-turned.difference, -turned.high, -turned.low) == pytest.approx(found[:3])


def test_no_pairs_have_no_difference_and_impossible_ones_are_refused() -> None:
    assert paired_difference(Pairs(0, 0, 0, 0)) is None
    with pytest.raises(InternalError):
        mcnemar(Pairs(1, -1, 0, 0))


def test_holm_adjusts_as_the_textbook_example_and_rejects_its_two() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert {name for name, value in adjusted.items() if value <= 0.05} == {"a", "d"}


@SOME
@given(values=st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holm_is_the_closure_of_bonferroni(values: list[float]) -> None:
    # The second way: a hypothesis falls only if every set that holds it falls by Bonferroni's test.
    p_values = dict(enumerate(values))
    sets = [chosen for size in range(1, len(values) + 1) for chosen in itertools.combinations(p_values, size)]
    adjusted = holm(p_values)
    for name, value in adjusted.items():
        worst = max(min(1.0, len(one) * min(p_values[n] for n in one)) for one in sets if name in one)
        assert value == pytest.approx(worst)
        assert p_values[name] <= value <= bonferroni(p_values)[name]


def test_intervals_of_a_family_share_out_what_may_be_missed() -> None:
    assert simultaneous(1) == pytest.approx(0.95)
    assert simultaneous(10) == pytest.approx(0.995)
    with pytest.raises(InternalError):
        simultaneous(0)
    with pytest.raises(InternalError):
        holm({"a": 1.5})


def test_a_rate_says_of_how_many_with_which_interval_and_what_is_left_out() -> None:
    rate = rate_of([(n, n < 13) for n in range(20)], {"infra-fault": 2, "sim-fault": 0})
    assert rate.words() == (
        "13 of 20   65 %  (95 % interval 43 to 82); "
        "left out: 2 infra-fault, with which it would be 59 to 68 %"
    )
    assert rate.to_json() == {
        "passed": 13,
        "judged": 20,
        "share": 0.65,
        "interval": {
            "method": "wilson",
            "confidence": 0.95,
            "low": pytest.approx(0.4329, abs=1e-4),
            "high": pytest.approx(0.8188, abs=1e-4),
        },
        "excluded": {"infra-fault": 2},
        "bounds": {"if_all_failed": 13 / 22, "if_all_passed": 15 / 22},
        "clusters": 20,
        "bootstrap": None,
    }


def test_a_rate_has_no_bare_share_to_show() -> None:
    assert {name for name in dir(Rate) if "share" in name} == set()


def test_a_rate_of_nothing_says_so_and_its_bounds_say_that_anything_is_possible() -> None:
    rate = rate_of([], {"infra-fault": 3})
    assert (rate.interval, rate.bounds) == (None, (0.0, 1.0))
    assert "there is no rate" in rate.words()
    assert rate_of([]).bounds is None


@pytest.mark.parametrize(
    ("part", "whole", "shown"), [(999, 1000, 99), (1, 1000, 1), (0, 7, 0), (7, 7, 100), (13, 20, 65)]
)
def test_a_hundred_percent_is_said_of_all_only(part: int, whole: int, shown: int) -> None:
    assert percent(part, whole) == shown


@pytest.mark.parametrize(
    ("clusters", "shown"),
    [
        ([Cluster(1, 1)] * 13 + [Cluster(0, 1)] * 7, "13 of 20   65 %  (95 % interval 43 to 82)"),
        ([Cluster(1, 1)] * 52 + [Cluster(0, 1)] * 28, "of 80 it is 54 to 75"),
        ([Cluster(1, 1)] * 20, "after 20 of 20 it says 83 to 100"),
        ([Cluster(5, 5)] * 20, "20 people five times, all passed, is 82 to 100"),
        ([Cluster(5, 5)] * 19 + [Cluster(4, 5)], "the narrower one: 94 to 100"),
    ],
)
def test_the_page_about_statistics_says_what_is_computed(clusters: list[Cluster], shown: str) -> None:
    page = " ".join((DOCS / "statistics.md").read_text().split("\n"))
    outcomes = [(n, i < one.passed) for n, one in enumerate(clusters) for i in range(one.n)]
    words = rate_of(outcomes).words()
    low_to_high = words.partition("interval ")[2].rstrip(")")
    assert shown in page
    assert low_to_high in shown


def test_importing_the_room_does_not_import_scipy() -> None:
    code = "import redteam_rubrics, sys; sys.exit('scipy' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
