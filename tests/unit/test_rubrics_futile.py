"""Rules that decide nothing are named before a launch; rules that may decide something are left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.recorded import RECORDED, recording
from support.rubrics import evidence, judge, rules

from redteam_rubrics import check_rules, check_together, parse_rules

CLINIC = Path(__file__).parents[2] / "seeds" / "clinic" / "rules.yaml"


def problems(body: str) -> list[tuple[tuple[str | int, ...], str]]:
    loaded = parse_rules({"a": {"severity": 1, **yaml.safe_load(body)}})
    return [(problem.loc, problem.message) for problem in check_rules(loaded)]


@pytest.mark.parametrize(
    ("body", "loc", "message"),
    [
        ("sql: SELECT true FROM t", ("sql",), "never fails: it answers true or nothing"),
        ("sql: SELECT NOT (1 = 1 AND true) OR false OR true FROM t", ("sql",), "never fails"),
        ("sql: SELECT false AND x FROM t", ("sql",), "never passes: it answers false or nothing"),
        ("sql: SELECT count(*) >= 0 FROM t", ("sql",), "never fails"),
        ("sql: SELECT count(*) < 0 FROM t", ("sql",), "never passes"),
        ("sql: SELECT x = 1 FROM t WHERE false", ("sql",), "never passes: it returns no row"),
        ("{sql: SELECT x FROM t WHERE false, rows: none}", ("sql",), "never fails: its WHERE is never true"),
        ("{sql: SELECT x FROM t WHERE y AND x = NULL, rows: some}", ("sql",), "never passes: its WHERE"),
        ("{sql: SELECT x FROM t LIMIT 0, rows: none}", ("sql",), "never fails: LIMIT 0"),
        ("{sql: SELECT count(*) FROM t WHERE x = 1, rows: none}", ("sql",), "never passes: an aggregate"),
        ("{sql: 'SELECT coalesce(max(x), 0) FROM t', rows: some}", ("sql",), "never fails: an aggregate"),
        ("changes: [t: {do: [insert, update, delete]}]", ("changes",), "never fails: it allows every change"),
        (
            "changes: [t: {do: [insert, update]}, t: {do: delete}, objects: '*']",
            ("changes",),
            "never fails",
        ),
        (
            "changes: [any_of: {x: [t: {do: insert}], y: [t: {do: [insert, update, delete]}]}]",
            ("changes",),
            "never fails: its alternative `y`",
        ),
        (
            "changes: [t: {do: insert, where: 'x = 1 AND false'}]",
            ("changes", 0, "t", "where"),
            "this entry allows nothing",
        ),
        (
            "changes: [t: {do: insert, where: 'x = NULL', exactly: 1}]",
            ("changes", 0, "t", "where"),
            "never passes: x = NULL is never true",
        ),
        ("transcript: {agent_says: {matches: '.'}}", ("transcript", "agent_says"), "never fails"),
        ("transcript: {user_says: {matches: '.+'}}", ("transcript", "user_says"), "never fails"),
        ("transcript: {never_says: {matches: '.'}}", ("transcript", "never_says"), "never passes"),
        (
            "transcript: {agent_says: We will refund you, never_says: refund}",
            ("transcript", "never_says"),
            'whoever says "We will refund you" says "refund"',
        ),
        ("tools: {called: x, at_most: {x: 0}}", ("tools", "at_most", "x"), "never passes: x must be called"),
        ("tools: {order: [x, y, x], at_most: {x: 1}}", ("tools", "at_most", "x"), "never passes"),
        ("tools: {arguments: {x: {y: {matches: '.'}}}}", ("tools", "arguments", "x", "y"), "never fails"),
        ("tools: {preceded_by: {x: x}}", ("tools", "preceded_by", "x"), "a first call of x never passes"),
        (
            "tools: {called: x, preceded_by: {x: y}, never_called: y}",
            ("tools", "preceded_by", "x"),
            "never passes",
        ),
        ("tools: {confirmed: {x: {matches: '.'}}}", ("tools", "confirmed", "x"), "never fails"),
        (
            "tools: {after_error: {x: {agent_says: not booked, never_says: booked}}}",
            ("tools", "after_error", "x", "never_says"),
            "never passes",
        ),
        ("outbox: {sent: {tool: x}, at_most: {x: 0}}", ("outbox", "at_most"), "never passes"),
        ("outbox: {sent: {tool: x}, at_most: 0}", ("outbox", "at_most"), "never passes"),
    ],
)
def test_a_rule_that_decides_nothing_is_named_at_its_place(
    body: str, loc: tuple[str | int, ...], message: str
) -> None:
    ((found, text),) = problems(body)
    assert found == ("a", *loc)
    assert message in text


@pytest.mark.parametrize(
    "body",
    [
        "sql: SELECT coalesce(bool_and(x), true) FROM t",
        "sql: SELECT count(*) > 0 FROM t",
        "sql: SELECT count(*) OVER () >= 0 FROM t",
        "{sql: SELECT count(*) FROM t GROUP BY x, rows: none}",
        "{sql: SELECT count(*) FROM t HAVING count(*) > 1, rows: none}",
        "{sql: 'SELECT unnest(array_agg(x)) FROM t', rows: some}",
        "{sql: SELECT count(*) FROM t WHERE false UNION SELECT x FROM t, rows: none}",
        "{sql: SELECT x FROM t WHERE x IS NOT DISTINCT FROM NULL, rows: none}",
        "{sql: SELECT (SELECT count(*) FROM t) FROM u, rows: none}",
        "changes: [t: {do: [insert, update]}]",
        "changes: [t: {do: [insert, update, delete], at_least: 1}]",
        "changes: [t: {do: [insert, update, delete]}, objects: public.x]",
        "changes: [t: {do: [insert, update, delete]}, u: {do: insert}]",
        "changes: [t: {do: insert, where: 'x = 1 OR x = NULL'}]",
        "transcript: {agent_says: refund, never_says: refund you}",
        "transcript: {agent_says: {matches: refund}, never_says: {matches: 're.+d'}}",
        # A border that is at the end of the phrase alone.
        "transcript: {agent_says: no refund, never_says: {matches: '^no refund$'}}",
        "tools: {called: x, at_most: {x: 1}}",
        "tools: {preceded_by: {x: [x, y]}}",
        "outbox: {sent: {tool: x}, at_most: 1}",
    ],
)
def test_a_rule_that_may_decide_something_is_left_alone(body: str) -> None:
    assert problems(body) == []


def test_rules_that_ship_decide_something() -> None:
    loaded = parse_rules(yaml.safe_load(CLINIC.read_text("utf-8")))
    assert [*check_rules(loaded), *check_together(loaded)] == []


@pytest.mark.parametrize("name", [name for name in RECORDED if recording(name)["rules"]])
def test_rules_of_recorded_conversations_decide_something(name: str) -> None:
    assert list(check_rules(parse_rules(recording(name)["rules"]))) == []


def test_rules_of_one_case_that_contradict_each_other_are_named() -> None:
    loaded = rules(
        """
        books: {severity: 1, tools: {called: book}}
        orders: {severity: 1, tools: {order: [find, move]}}
        quiet: {severity: 1, tools: {never_called: [book, drop]}}
        few: {severity: 1, tools: {at_most: {move: 0, find: 1}}}
        """
    )
    case = "a case with this rule never passes:"
    assert [(problem.loc, problem.message) for problem in check_together(loaded)] == [
        (
            ("quiet", "tools", "never_called"),
            "a case with this rule never passes: books demands a call of book",
        ),
        (("few", "tools", "at_most"), f"{case} orders demands a call of move"),
    ]


LINES = st.builds(
    lambda speaker, text: {"kind": speaker, "text": text},
    st.sampled_from(["agent", "user"]),
    st.text("ab .", min_size=1),
)
CALLS = st.builds(
    lambda name: {"kind": "tool_call", "call": "c", "name": name, "arguments": {}},
    st.sampled_from(["x", "y"]),
)
EVENTS = st.lists(st.one_of(LINES, CALLS), max_size=6)
PHRASES = st.sampled_from(["a", "ab", "b a", {"matches": "."}, {"matches": "a+"}, {"matches": "^b"}])
BODIES = st.one_of(
    st.fixed_dictionaries(
        {"transcript": st.fixed_dictionaries({"agent_says": PHRASES, "never_says": PHRASES})}
    ),
    st.fixed_dictionaries(
        {
            "tools": st.fixed_dictionaries(
                {"at_most": st.fixed_dictionaries({"x": st.integers(0, 2)})},
                optional={"called": st.just("x"), "order": st.just(["x", "x"])},
            )
        }
    ),
)


@given(BODIES, EVENTS)
async def test_what_is_said_never_to_pass_does_not_pass(
    body: dict[str, Any], events: list[dict[str, Any]]
) -> None:
    said = [problem.message for problem in check_rules(parse_rules({"a": {"severity": 1, **body}}))]
    verdict = await judge(yaml.safe_dump(body), evidence(*events))
    if any("never passes" in message for message in said):
        assert verdict.status == "fail"
