"""The figures of a calibration, against values that others published."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_rubrics.calibration import (
    Label,
    Pair,
    Share,
    agreements,
    cohen_kappa,
    consensus,
    corrected,
    measure,
    rank_correlation,
)


def pairs(*cells: tuple[str, str, int], severity: int = 2, length: int = 10) -> list[Pair]:
    """`count` pairs of what people and the judge said."""
    return [
        Pair(severity=severity, human=human, judge=judge, length=length)  # type: ignore[arg-type]
        for human, judge, count in cells
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    ("table", "kappa", "error"),
    [
        # Cohen 1960, table 2: 200 patients, three diagnoses; 0.70 observed, 0.41 expected.
        pytest.param([[88, 14, 18], [10, 40, 10], [2, 6, 12]], 0.492, None, id="cohen-1960"),
        # Fleiss, Levin and Paik, Statistical Methods for Rates and Proportions, table 18.1.
        pytest.param([[75, 1, 4], [5, 4, 1], [0, 0, 10]], 0.68, 0.087, id="fleiss-levin-paik"),
        # Stata's kapci with its analytical error, as posted to Statalist in December 2009.
        pytest.param([[1395, 118], [261, 158]], 0.3411969, 0.0262914, id="stata-kapci"),
    ],
)
def test_kappa_and_its_standard_error_are_those_of_the_books(
    table: list[list[int]], kappa: float, error: float | None
) -> None:
    found = cohen_kappa(table)
    assert found is not None
    assert found.value == pytest.approx(kappa, abs=0.005 if kappa == 0.68 else 0.0005)
    if error is not None:
        assert found.interval is not None
        half = (found.interval.high - found.interval.low) / 2
        assert half / 1.959964 == pytest.approx(error, abs=0.001 if error == 0.087 else 1e-6)


def test_kappa_is_undefined_where_chance_explains_everything() -> None:
    assert cohen_kappa([[0, 0], [0, 0]]) is None
    assert cohen_kappa([[12, 0], [0, 0]]) is None


def test_kappa_of_perfect_agreement_is_1_and_claims_no_interval_of_width_0() -> None:
    found = cohen_kappa([[7, 0], [0, 5]])
    assert found is not None
    assert (found.value, found.interval) == (1.0, None)


@given(st.lists(st.integers(0, 40), min_size=4, max_size=4))
def test_kappa_does_not_depend_on_who_is_named_first(cells: list[int]) -> None:
    a, b, c, d = cells
    one, other = cohen_kappa([[a, b], [c, d]]), cohen_kappa([[a, c], [b, d]])
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert math.isclose(one.value, other.value, abs_tol=1e-12)
        assert -1 <= one.value <= 1


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        # Newcombe 1998 (Two-sided confidence intervals for the single proportion), table I, method 3.
        pytest.param(81, 263, 0.2553, 0.3662, id="81-of-263"),
        pytest.param(15, 148, 0.0624, 0.1605, id="15-of-148"),
        pytest.param(0, 20, 0.0, 0.1611, id="none-of-20"),
        pytest.param(1, 29, 0.0061, 0.1718, id="1-of-29"),
    ],
)
def test_agreement_has_wilsons_interval(passed: int, n: int, low: float, high: float) -> None:
    interval = Share(count=passed, n=n).interval
    assert interval == pytest.approx((low, high), abs=5e-5)


def test_a_share_of_nothing_is_undefined() -> None:
    assert (Share(count=0, n=0).share, Share(count=0, n=0).interval) == (None, None)


def test_the_corrected_rate_is_that_of_rogan_and_gladen() -> None:
    # The manual of epiR's epi.prev: 23 of 150 cows, sensitivity 96 %, specificity 89 %: 5 in 100.
    found = corrected(Share(count=23, n=150), Share(count=96, n=100), Share(count=89, n=100))
    assert found.share == pytest.approx(0.051, abs=5e-4)
    assert not found.clipped


def test_the_corrected_rates_interval_is_that_of_lang_and_reiczigel() -> None:
    # Their first example, 2014, as R's asht::prevSeSp has it: 0.349 to 0.372.
    found = corrected(Share(count=4060, n=11284), Share(count=178, n=179), Share(count=358, n=359))
    assert found.interval == pytest.approx((0.349, 0.372), abs=5e-4)


@given(
    st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
)
def test_a_corrected_rate_is_a_rate_or_says_why_it_is_none(
    raw: tuple[int, int], passes: tuple[int, int], fails: tuple[int, int]
) -> None:
    found = corrected(*(Share(count=count, n=n) for count, n in (raw, passes, fails)))
    assert (found.share is None) == bool(found.undefined)
    if found.share is not None:
        assert 0 <= found.share <= 1
    if found.interval is not None:
        assert 0 <= found.interval.low <= found.interval.high <= 1


def test_a_judge_without_mistakes_leaves_the_rate_as_it_is_and_makes_it_less_certain() -> None:
    raw = Share(count=60, n=80)
    found = corrected(raw, Share(count=20, n=20), Share(count=20, n=20))
    assert found.share == 0.75
    assert found.interval is not None
    assert raw.interval is not None
    assert found.interval.high - found.interval.low > raw.interval.high - raw.interval.low


@pytest.mark.parametrize(
    ("raw", "passes", "fails", "why"),
    [
        pytest.param((0, 0), (5, 5), (5, 5), "decided nothing", id="nothing-decided"),
        pytest.param((5, 9), (0, 0), (5, 5), "no label says pass", id="no-pass"),
        pytest.param((5, 9), (5, 5), (0, 0), "no label says fail", id="no-fail"),
        pytest.param((5, 9), (5, 10), (5, 10), "no better than chance", id="a-coin"),
    ],
)
def test_what_cannot_be_corrected_is_not(
    raw: tuple[int, int], passes: tuple[int, int], fails: tuple[int, int], why: str
) -> None:
    found = corrected(*(Share(count=count, n=n) for count, n in (raw, passes, fails)))
    assert (found.share, found.interval) == (None, None)
    assert why in found.undefined


def test_an_estimate_beyond_the_edge_is_put_on_it_and_said_to_be() -> None:
    # Fewer passes than the judge passes by mistake alone.
    found = corrected(Share(count=1, n=100), Share(count=18, n=20), Share(count=16, n=20))
    assert (found.share, found.clipped) == (0.0, True)


def test_unclear_faults_and_disputes_are_apart_from_agreement() -> None:
    found = measure(
        [
            *pairs(("pass", "pass", 6), ("pass", "fail", 1), ("fail", "pass", 2), ("fail", "fail", 3)),
            *pairs(("pass", "unclear", 4), ("unclear", "pass", 5), ("unclear", "unclear", 1)),
            *pairs(("disputed", "pass", 2)),
            Pair(severity=2, human="fail", judge="unclear", fault="judge", length=1),
        ]
    )
    assert (found.n, found.agreement.count) == (12, 9)
    assert (found.pass_recall.count, found.pass_recall.n) == (6, 7)
    assert (found.fail_recall.count, found.fail_recall.n) == (3, 5)
    assert (found.judge_unclear, found.judge_faults, found.human_unclear, found.disputed) == (4, 1, 6, 2)


def test_mistakes_are_counted_by_severity() -> None:
    found = measure(
        [
            *pairs(("fail", "pass", 1), ("pass", "pass", 4), severity=1),
            *pairs(("pass", "fail", 2), ("fail", "fail", 1), severity=3),
        ]
    )
    assert [(one.severity, one.n, one.false_passes, one.false_fails) for one in found.mistakes] == [
        (1, 5, 1, 0),
        (3, 3, 0, 2),
    ]
    assert (found.false_passes, found.false_fails) == (1, 2)


def test_a_judge_that_is_lenient_with_long_answers_is_found_out() -> None:
    short = [Pair(severity=2, human="fail", judge="fail", length=length) for length in range(100, 120)]
    long = [Pair(severity=2, human="fail", judge="pass", length=length) for length in range(900, 920)]
    found = measure([*short, *long]).verbosity
    assert found is not None
    assert found.interval is not None
    assert found.interval.low > 0.5
    assert measure(short).verbosity is None


def test_the_rank_correlation_is_the_one_that_a_textbook_computes() -> None:
    # IQ and hours of television of ten people, a common worked example: rho = -29 / 165.
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    found = rank_correlation(iq, hours)
    assert found is not None
    assert found.value == pytest.approx(-29 / 165)
    assert rank_correlation([1, 1, 1, 1], hours[:4]) is None


@pytest.mark.parametrize(
    ("said", "together"),
    [
        (["pass"], "pass"),
        (["pass", "fail"], "disputed"),
        (["pass", "fail", "fail"], "fail"),
        (["unclear"], "unclear"),
        (["unclear", "fail"], "fail"),
    ],
)
def test_people_are_one_where_most_of_them_are(said: list[str], together: str) -> None:
    assert consensus(said) == together  # type: ignore[arg-type]


def test_two_people_are_compared_on_what_both_decided() -> None:
    def label(who: str, conversation: str, status: str) -> Label:
        return Label(conversation=conversation, rule="r", who=who, status=status)  # type: ignore[arg-type]

    (found,) = agreements(
        [
            *(label("anna", f"c{n}", "pass" if n < 3 else "fail") for n in range(6)),
            *(label("bob", f"c{n}", "pass" if n < 2 else "fail") for n in range(5)),
            label("bob", "c5", "unclear"),
            label("carla", "c9", "pass"),
        ]
    )
    assert found.people == ("anna", "bob")
    assert (found.agreement.count, found.agreement.n) == (4, 5)
    assert found.kappa is not None
    assert found.kappa.value == pytest.approx((0.8 - 12 / 25) / (1 - 12 / 25))


def test_the_tables_of_the_documentation_are_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "calibration.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) to (\d+) % \|$", page, re.MULTILINE)
    assert len(rows) == 10
    for n, count, low, high in rows:
        interval = Share(count=int(count), n=int(n)).interval
        assert interval is not None
        assert [round(100 * end) for end in interval] == [int(low), int(high)]
