"""Prices, usage and budgets: what is counted, and when enough is enough."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from redteam_harness.models.budget import Budget, Limits
from redteam_harness.models.chat import Usage
from redteam_harness.models.prices import Price, Prices, load_prices
from redteam_harness.models.usage import Ledger, Spent, spent_from_json, spent_in
from redteam_harness.report.junit import junit
from redteam_harness.report.summary import summarise
from redteam_harness.report.terminal import print_report
from redteam_harness.report.usage import usage_data, usage_lines

MILLION = 1_000_000


def _spent(model: str = "m", role: str = "agent", **more: object) -> Spent:
    return Spent(role=role, model=model, calls=1, usage=Usage(input=10, output=2), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "usage", "usd"),
    [
        pytest.param("claude-opus-4-8", Usage(input=MILLION), 5.0, id="input"),
        pytest.param("claude-opus-4-8", Usage(cache_write=MILLION), 6.25, id="cache-write"),
        pytest.param("claude-opus-4-8", Usage(cache_read=MILLION), 0.5, id="cache-read"),
        pytest.param("claude-opus-4-8", Usage(output=MILLION), 25.0, id="output"),
        pytest.param("claude-fable-5-2", Usage(input=1), None, id="listed-as-unknown"),
        pytest.param("claude-opus-4-8-latest", Usage(input=1), None, id="not-listed"),
    ],
)
def test_a_price_is_the_listed_one_or_none(model: str, usage: Usage, usd: float | None) -> None:
    cost = load_prices().cost_usd(model, usage)
    assert cost == (None if usd is None else pytest.approx(usd))


@pytest.mark.parametrize(
    ("usage", "usd"),
    [
        pytest.param(Usage(input=100_000), 0.01, id="short-prompt"),
        pytest.param(Usage(input=50_000, cache_read=50_001), 0.02750005, id="long-prompt"),
    ],
)
def test_a_price_may_hang_on_the_length_of_the_prompt(usage: Usage, usd: float) -> None:
    short = Price(prompt_up_to=100_000, input=0.1, cache_read=0.01, output=0.5)
    prices = Prices({"m": (short, Price(input=0.5, cache_read=0.05, output=2.5))})
    assert prices.cost_usd("m", usage) == pytest.approx(usd)


def test_a_suites_own_price_wins() -> None:
    prices = load_prices({"claude-opus-4-8": Price(input=1, output=1), "mine": Price(input=2, output=2)})
    assert prices.cost_usd("claude-opus-4-8", Usage(input=MILLION)) == 1
    assert prices.cost_usd("mine", Usage(output=MILLION)) == 2


def test_a_ledger_sums_by_role_and_model_for_each_conversation_and_in_all() -> None:
    ledger = Ledger()
    ledger.book("c001", [_spent(usd=0.5), _spent(usd=0.25)])
    ledger.book("c002", [_spent(usd=1.0), _spent(role="actor", unpriced=1)])
    assert [(row.role, row.calls, row.usd) for row in ledger.of("c001")] == [("agent", 2, 0.75)]
    assert [(row.role, row.calls, row.usage.input, row.usd) for row in ledger.all] == [
        ("actor", 1, 10, 0.0),
        ("agent", 3, 30, 1.75),
    ]
    assert ledger.of("c003") == ()


def test_a_row_is_read_back_as_it_was_written() -> None:
    row = _spent(usd=0.125, faults=3, replayed=2, unpriced=1)
    assert spent_from_json(row.to_json()) == row


def test_the_calls_of_a_trace_sum_up_to_what_was_booked() -> None:
    call = {
        "kind": "model_call",
        "role": "agent",
        "model": "m",
        "answers": 1,
        "usage": {"input": 10, "cache_write": 0, "cache_read": 0, "output": 2},
        "usd": 0.5,
        "faults": [{"kind": "cut"}],
    }
    priceless = {**call, "usd": None, "answers": 2}
    (row,) = spent_in([{"kind": "user"}, call, priceless])
    assert (row.calls, row.faults, row.usage, row.usd, row.unpriced) == (
        3,
        2,
        Usage(input=20, output=4),
        0.5,
        2,
    )


@pytest.mark.parametrize(
    ("limits", "seconds", "says"),
    [
        pytest.param(Limits(), 1e9, None, id="none"),
        pytest.param(Limits(usd=1.0, tokens=100, seconds=10), 9.9, None, id="below"),
        pytest.param(Limits(usd=0.5), 0, "$0.5 is spent ($0.5000)", id="dollars"),
        pytest.param(Limits(tokens=12), 0, "12 tokens is spent (12)", id="tokens"),
        pytest.param(Limits(seconds=10), 10, "10 seconds are over", id="seconds"),
    ],
)
def test_a_limit_that_is_reached_is_named(limits: Limits, seconds: float, says: str | None) -> None:
    said = limits.spent_by([_spent(usd=0.5)], seconds)
    assert (said is None) if says is None else (said is not None and says in said)


def test_only_a_budget_in_dollars_needs_prices() -> None:
    assert Budget(conversation=Limits(usd=1)).needs_prices
    assert not Budget(run=Limits(tokens=1, seconds=1)).needs_prices


def test_a_report_never_adds_up_a_cost_that_it_does_not_know() -> None:
    known, unknown = _spent("a", usd=0.5), _spent("b", role="actor", unpriced=1)
    assert usage_data([known])["usd"] == 0.5
    assert usage_data([known, unknown])["usd"] is None
    lines = usage_lines([unknown, known])
    assert lines[-1] == "in all  unknown: a model has no price"
    assert "price unknown" in lines[0]
    assert "$0.5000" in lines[1]
    assert usage_lines([]) == []


def test_the_terminal_names_what_was_not_held_and_why_and_what_models_cost() -> None:
    summary = summarise(
        [],
        notice="live",
        suite="s",
        run="abc234",
        planned=2,
        forks=0,
        interrupted=False,
        seconds=1.0,
        not_held=["c001", "c002"],
        stopped="the run: its budget of $5 is spent ($5.0100)",
        usage=[_spent("m", usd=5.01)],
    )
    console = Console(file=io.StringIO(), width=200)
    print_report(console, summary, "runs/abc234", lambda _: ())
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "not held     c001 c002: the run: its budget of $5 is spent ($5.0100)" in shown
    assert "redteam launch --resume runs/abc234" in shown
    assert "models       agent   m  1 calls  10 in, 2 out  $5.0100" in shown
    assert "exit 3: 2 planned conversations without a verdict, not held" in shown
    assert junit(summary).count("budget of $5 is spent") == 2
