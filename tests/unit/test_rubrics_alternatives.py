"""`changes` rules with alternatives and with numbers of rows that must change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.rubrics import NoWorld, evidence, judge, rules

from redteam_rubrics import check_names, grade

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_rubrics import Evidence


def row(op: str, key: int, *changed: str, by: Sequence[str] | None = None) -> dict[str, Any]:
    image = {"id": str(key), "kind": "office", "note": None}
    old = None if op == "insert" else {**image, **dict.fromkeys(changed, "before")}
    new = None if op == "delete" else {**image, **dict.fromkeys(changed, "after")}
    facts = {"op": op, "key": {"id": str(key)}, "old": old, "new": new, "changed": list(changed)}
    return {**facts, "xid": None, "by": None if by is None else list(by)}


def table(name: str, *rows: dict[str, Any], omitted: int = 0) -> dict[str, Any]:
    columns = {"id": "bigint", "kind": "text", "note": "text"}
    facts = {"schema": "public", "table": name, "key": ["id"], "columns": columns, "rows": list(rows)}
    return {**facts, "omitted": omitted}


INSERT, UPDATE, NOTED = row("insert", 1), row("update", 2, "kind"), row("update", 3, "note")


@pytest.mark.parametrize(
    ("entry", "rows", "status"),
    [
        ("{do: insert, at_least: 1}", (), "fail"),
        ("{do: insert, at_least: 1}", (INSERT,), "pass"),
        ("{do: insert, at_least: 2}", (INSERT,), "fail"),
        ("{do: insert, exactly: 1}", (INSERT,), "pass"),
        ("{do: insert, exactly: 1}", (), "fail"),
        ("{do: insert, exactly: 1}", (INSERT, row("insert", 9)), "fail"),
        ("{do: [insert, update], at_least: 1, at_most: 2}", (INSERT, UPDATE), "pass"),
        ("{do: [insert, update], columns: kind, exactly: 2}", (INSERT, NOTED), "fail"),
        # Who wrote it is not known, so neither is whether it counts.
        ("{do: insert, by: book, at_least: 1}", (INSERT,), "unclear"),
    ],
)
async def test_a_number_of_rows_can_be_demanded(
    entry: str, rows: tuple[dict[str, Any], ...], status: str
) -> None:
    verdict = await judge(f"changes: [visits: {entry}]", evidence(tables=[table("visits", *rows)]))
    assert (verdict.status, verdict.vacuous) == (status, False)


async def test_what_is_missing_is_named_though_its_table_did_not_change() -> None:
    verdict = await judge("changes: [visits: {do: insert, exactly: 2}]", evidence())
    (finding,) = verdict.findings
    assert verdict.reason == "less changed than must"
    assert (finding.table, finding.op) == ("visits", None)
    assert finding.text == "0 rows of visits are known to have been added, at least 2 must be."


async def test_rows_too_many_to_keep_may_be_those_that_must_have_changed() -> None:
    rule = "changes: [visits: {do: [insert, update, delete], at_least: 5}]"
    given = evidence(tables=[table("visits", INSERT, omitted=10)])
    assert (await judge(rule, given)).status == "unclear"
    assert (await judge(rule, evidence(tables=[table("visits", INSERT, omitted=3)]))).status == "fail"


MOVED_OR_REBOOKED = """
changes:
  - messages: {do: insert, at_most: 1}
  - any_of:
      moved:
        - visits: {do: update, columns: note, exactly: 1}
      rebooked:
        - visits: {do: update, columns: kind, exactly: 1}
        - visits: {do: insert, exactly: 1}
        - slots: {do: update}
"""


@pytest.mark.parametrize(
    ("tables", "status", "part"),
    [
        ([table("visits", NOTED)], "pass", "as `moved`"),
        ([table("visits", INSERT, UPDATE), table("slots", UPDATE)], "pass", "as `rebooked`"),
        ([table("visits", NOTED), table("messages", INSERT)], "pass", "all 2 changes"),
        # Half of one and half of the other is neither.
        ([table("visits", NOTED, INSERT)], "fail", "`moved` comes nearest"),
        ([table("visits", UPDATE)], "fail", "comes nearest"),
        ([], "fail", "less changed than must; of the alternatives, `moved`"),
        # What the entries outside of the alternatives say holds for each of them.
        ([table("visits", NOTED), table("messages", INSERT, row("insert", 5))], "fail", "`moved`"),
        # A table that only another alternative lets change.
        ([table("visits", NOTED), table("slots", UPDATE)], "fail", "`moved`"),
        # A table that the rule does not name is no business of its.
        ([table("visits", NOTED), table("patients", UPDATE)], "pass", "all 1 changes"),
    ],
)
async def test_a_whole_conversation_keeps_to_one_alternative(
    tables: list[dict[str, Any]], status: str, part: str
) -> None:
    verdict = await judge(MOVED_OR_REBOOKED, evidence(tables=tables))
    assert verdict.status == status
    assert part in verdict.reason


async def test_a_row_that_another_alternative_is_for_says_so() -> None:
    given = evidence(tables=[table("visits", NOTED), table("slots", UPDATE)])
    (finding,) = (await judge(MOVED_OR_REBOOKED, given)).findings
    assert finding.text.endswith("no row of it may change in `moved`.")


async def gate(text: str, given: Evidence, *, writes: bool = False) -> tuple[str, str]:
    loaded = rules("a:\n  severity: 3" + text.replace("\n", "\n  "))
    verdict, collateral = await grade(loaded, given, NoWorld(), gate="writes" if writes else "changes")
    return verdict.status, collateral.status


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([table("visits", NOTED)], ("pass", "pass")),
        # Each is allowed by some alternative; that they do not go together is the rule's finding.
        ([table("visits", NOTED, INSERT)], ("fail", "pass")),
        ([table("visits", row("delete", 4))], ("fail", "fail")),
        ([table("visits", NOTED), table("patients", UPDATE)], ("pass", "fail")),
    ],
)
async def test_the_gate_asks_of_each_change_whether_any_alternative_allows_it(
    tables: list[dict[str, Any]], expected: tuple[str, str]
) -> None:
    assert await gate(MOVED_OR_REBOOKED, evidence(tables=tables)) == expected


async def test_what_was_written_and_put_back_must_be_allowed_by_the_alternative_that_was_kept_to() -> None:
    writes = [{"schema": "public", "table": "slots", "op": "update", "rows": 2, "by": []}]
    moved = evidence(tables=[table("visits", NOTED)], writes=writes)
    rebooked = evidence(tables=[table("visits", INSERT, UPDATE)], writes=writes)
    assert await gate(MOVED_OR_REBOOKED, moved, writes=True) == ("pass", "fail")
    assert await gate(MOVED_OR_REBOOKED, rebooked, writes=True) == ("pass", "pass")


async def test_it_is_unclear_whether_an_alternative_holds_only_if_none_surely_does() -> None:
    rule = """
    changes:
      - any_of:
          by-tool: [visits: {do: update, by: move}]
          free: [visits: {do: update, columns: note}]
    """
    assert (await judge(rule, evidence(tables=[table("visits", NOTED)]))).status == "pass"
    assert (await judge(rule, evidence(tables=[table("visits", UPDATE)]))).status == "unclear"
    assert (await judge(rule, evidence(tables=[table("visits", INSERT)]))).status == "fail"


@pytest.mark.parametrize(
    ("changes", "loc", "message"),
    [
        ("[visits: {do: insert, exactly: 0}]", (0, "visits", "exactly"), "greater than or equal to 1"),
        ("[visits: {do: insert, exactly: 1, at_most: 2}]", (0, "visits", "exactly"), "write it alone"),
        ("[visits: {do: insert, at_least: 3, at_most: 2}]", (0, "visits", "at_least"), "cannot both be"),
        ("[any_of: {one: [visits: {do: insert}]}]", (0, "any_of"), "at least two alternatives"),
        ("[any_of: {one: [visits: {do: insert}], two: []}]", (0, "any_of", "two"), "at least one"),
        ("[any_of: [visits: {do: insert}]]", (0, "any_of"), "expected {name: [entries]}"),
        (
            "[any_of: {one: [x: {do: insert}], two: [x: {d: insert}]}]",
            (0, "any_of", "two", 0, "x", "d"),
            "do",
        ),
        (
            "[any_of: {one: [x: {do: insert}], two: [any_of: {}]}]",
            (0, "any_of", "two"),
            "an alternative has none of its own",
        ),
        (
            "[any_of: {a: [x: {do: insert}], b: [y: {do: insert}]}, "
            "any_of: {c: [x: {do: insert}], d: [y: {do: insert}]}]",
            (),
            "expected one `any_of`",
        ),
    ],
)
def test_alternatives_and_numbers_that_cannot_be_meant_are_refused_in_their_place(
    changes: str, loc: tuple[str | int, ...], message: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        rules(f"a: {{severity: 1, changes: {changes}}}")
    errors = [(error["loc"], error["msg"]) for error in refused.value.errors()]
    assert errors[0][0] == ("a", "changes", *loc)
    assert message in errors[0][1]


def test_names_in_alternatives_are_checked_too() -> None:
    text = "a: {severity: 1, changes: [any_of: {one: [visits: {do: insert}], two: [vists: {do: insert}]}]}"
    (problem,) = check_names(rules(text), {"visits": ["id"]})
    assert problem.loc == ("a", "changes", 0, "any_of", "two", 0)
    assert "did you mean visits?" in problem.message


ROWS = st.lists(
    st.builds(
        lambda op, key, column: row(op, key, column) if op == "update" else row(op, key),
        st.sampled_from(["insert", "update", "delete"]),
        st.integers(1, 9),
        st.sampled_from(["kind", "note"]),
    ),
    max_size=4,
)
WAYS = {
    "moved": "[visits: {do: update, columns: note, exactly: 1}]",
    "rebooked": "[visits: {do: [insert, update], at_least: 2}]",
    "dropped": "[visits: {do: delete, at_most: 1}, slots: {do: update}]",
}


@given(ROWS, ROWS, st.permutations(sorted(WAYS)))
async def test_alternatives_hold_exactly_where_one_of_them_holds_alone(
    visits: list[dict[str, Any]], slots: list[dict[str, Any]], order: list[str]
) -> None:
    given_evidence = evidence(tables=[table("visits", *visits), table("slots", *slots)])
    # Every alternative judges every table that the rule names, so alone it must name them, too.
    alone = [
        await judge(f"changes: [slots: {{do: insert, at_most: 0}}, {WAYS[name][1:]}", given_evidence)
        for name in order
    ]
    ways = ", ".join(f"{name}: {WAYS[name]}" for name in order)
    both = await judge(f"changes: [slots: {{do: insert, at_most: 0}}, any_of: {{{ways}}}]", given_evidence)
    assert (both.status == "pass") == any(verdict.status == "pass" for verdict in alone)
