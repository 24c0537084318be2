from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from support.rubrics import NoWorld, evidence, rules

from redteam_rubrics import Policies, Verdict, check_policies, grade
from redteam_rubrics.equality import alike_in_any_order, within
from redteam_rubrics.policies import canonical_type

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

TYPES = {
    "id": "bigint",
    "status": "text",
    "fee": "numeric(12,2)",
    "weight": "double precision",
    "tags": "text[]",
    "extra": "jsonb",
    "updated_at": "timestamp with time zone",
}
OLD = {
    "id": "1",
    "status": "open",
    "fee": "10.00",
    "weight": "1e-07",
    "tags": "{a,b}",
    "extra": '{"l": [1, 2]}',
    "updated_at": "2026-11-30 09:00:00+00",
}
NEW = {
    "status": "paid",
    "fee": "10.01",
    "weight": "1.5e-07",
    "tags": "{b,a}",
    "extra": '{"l": [2.0, 1]}',
    "updated_at": "2026-11-30 10:00:00+00",
}


def policies(text: str) -> Policies:
    return Policies.model_validate(yaml.safe_load(text))


def updated(*columns: str, key: bool = True, **new: str | None) -> dict[str, Any]:
    """A table with one updated row: columns as in NEW, or as given."""
    image = {**OLD, **{name: NEW[name] for name in columns}, **new}
    row = {"op": "update", "key": {"id": "1"}, "old": OLD, "new": image}
    return table({**row, "changed": [name for name in TYPES if OLD[name] != image[name]]})


def table(*rows: dict[str, Any], name: str = "bills") -> dict[str, Any]:
    facts = {"schema": "public", "table": name, "key": ["id"], "columns": TYPES, "omitted": 0}
    return {**facts, "rows": [{"xid": None, "by": None, **row} for row in rows]}


async def judged(compare: str, changed: Mapping[str, Any], text: str = "") -> tuple[Verdict, ...]:
    given_rules = rules(text) if text else {}
    return await grade(given_rules, evidence(tables=[changed]), NoWorld(), policies=policies(compare))


@pytest.mark.parametrize(
    ("compare", "columns", "status"),
    [
        ("{}", ["updated_at"], "fail"),
        ("columns: {updated_at: exact}", ["updated_at"], "fail"),
        ("columns: {updated_at: ignore}", ["updated_at"], "pass"),
        ("columns: {updated_at: ignore}", ["updated_at", "status"], "fail"),
        ("columns: {bills.updated_at: ignore}", ["updated_at"], "pass"),
        ("columns: {public.bills.updated_at: ignore}", ["updated_at"], "pass"),
        ("columns: {visits.updated_at: ignore}", ["updated_at"], "fail"),
        ("types: {timestamptz: ignore}", ["updated_at"], "pass"),
        ("types: {timestamp: ignore}", ["updated_at"], "fail"),
        # Touched is changed: some rule must allow it.
        ("columns: {updated_at: any}", ["updated_at"], "fail"),
        ("columns: {fee: {tolerance: 0.01}}", ["fee"], "pass"),
        ("columns: {fee: {tolerance: 0.009}}", ["fee"], "fail"),
        ("types: {numeric: {tolerance: 1}}", ["fee"], "pass"),
        ("columns: {weight: {tolerance: 0.00000005}}", ["weight"], "pass"),
        ("columns: {tags: set}", ["tags"], "pass"),
        ("columns: {extra: set}", ["extra"], "pass"),
        ("columns: {tags: set, extra: set, fee: {tolerance: 1}}", ["tags", "extra", "fee"], "pass"),
        # table.column before column before type.
        ("columns: {updated_at: ignore, bills.updated_at: exact}", ["updated_at"], "fail"),
        ("{columns: {updated_at: exact}, types: {timestamptz: ignore}}", ["updated_at"], "fail"),
        ("{columns: {bills.updated_at: ignore, updated_at: exact}}", ["updated_at"], "pass"),
    ],
)
async def test_the_gate_sees_only_differences_that_count(
    compare: str, columns: list[str], status: str
) -> None:
    (gate,) = await judged(compare, updated(*columns))
    assert gate.status == status


async def test_a_finding_speaks_of_the_columns_that_count_only() -> None:
    (gate,) = await judged("columns: {updated_at: ignore}", updated("status", "updated_at"))
    assert gate.findings[0].columns == ("status",)
    assert "updated_at" not in gate.findings[0].text


async def test_the_gate_tells_that_rows_were_left_out() -> None:
    (gate,) = await judged("columns: {updated_at: ignore}", updated("updated_at"))
    assert gate.reason == "nothing changed that counts; 1 row differs in ways that `compare` leaves out"


BOTH = ["status", "updated_at"]


@pytest.mark.parametrize(
    ("compare", "rule", "columns", "status", "vacuous"),
    [
        ("{}", "{do: update, columns: status}", BOTH, "fail", False),
        ("columns: {updated_at: any}", "{do: update, columns: status}", BOTH, "pass", False),
        ("columns: {updated_at: any}", "{do: update, columns: status}", ["updated_at"], "pass", False),
        ("columns: {updated_at: any}", "{do: update, columns: status}", ["fee", "updated_at"], "fail", False),
        ("columns: {updated_at: any}", "{do: insert}", ["updated_at"], "fail", False),
        ("columns: {updated_at: any}", "{do: update, at_most: 0}", ["updated_at"], "fail", False),
        ("columns: {updated_at: ignore}", "{do: update, columns: status}", BOTH, "pass", False),
        ("columns: {updated_at: ignore}", "{do: update, at_most: 0}", ["updated_at"], "pass", True),
        ("columns: {fee: {tolerance: 1}}", "{do: update, columns: status}", ["status", "fee"], "pass", False),
    ],
)  # fmt: skip
async def test_a_changes_rule_sees_only_differences_that_count(
    compare: str, rule: str, columns: list[str], status: str, vacuous: bool
) -> None:
    verdict, _ = await judged(compare, updated(*columns), f"a: {{severity: 1, changes: [bills: {rule}]}}")
    assert (verdict.status, verdict.vacuous) == (status, vacuous)


@pytest.mark.parametrize("op", ["insert", "delete"])
async def test_a_row_that_was_added_or_deleted_is_a_change_whatever_is_ignored(op: str) -> None:
    everything = f"columns: {{{', '.join(f'{name}: ignore' for name in TYPES)}}}"
    image: dict[str, Any] = {"op": op, "key": {"id": "1"}, "changed": [], "old": None, "new": None}
    image["new" if op == "insert" else "old"] = OLD
    (gate,) = await judged(everything, table(image))
    assert gate.status == "fail"


def keyless(op: str, **cells: str) -> dict[str, Any]:
    image = {**OLD, **cells}
    sides = {"old": image if op == "delete" else None, "new": image if op == "insert" else None}
    return {"op": op, "key": None, "changed": [], **sides}


async def test_in_a_table_without_a_key_a_pair_that_ignored_columns_tell_apart_is_no_change() -> None:
    changed = table(
        keyless("delete", updated_at="1"),
        keyless("insert", updated_at="2"),
        keyless("insert", updated_at="3"),
    )
    (gate,) = await judged("columns: {updated_at: ignore}", changed)
    assert [finding.op for finding in gate.findings] == ["insert"]
    (gate,) = await judged("columns: {fee: ignore}", changed)
    assert len(gate.findings) == 3


@pytest.mark.parametrize("cell", [None, "NaN", "Infinity", "1e400000x"])
async def test_nothing_is_near_an_empty_or_odd_number(cell: str | None) -> None:
    (gate,) = await judged("columns: {fee: {tolerance: 1000}}", updated(fee=cell))
    assert gate.status == "fail"
    assert not within(cell, "1", Decimal(1000))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=20), st.decimals(0, 5, places=20))
def test_a_tolerance_is_exact_to_the_last_digit(number: Decimal, apart: Decimal) -> None:
    other = str(Decimal(0) + number)  # the default context rounds to 28 digits; within() must not
    assert within(str(number), other, abs(Decimal(other) - number) or Decimal(1))
    assert within("0", str(apart), apart or Decimal(1))
    assert not within("0", str(apart), apart - Decimal("1e-21"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=12,
)


def _shuffled(value: Any, draw: random.Random) -> Any:
    if isinstance(value, list):
        items = [_shuffled(item, draw) for item in value]
        draw.shuffle(items)
        return items
    if isinstance(value, dict):
        return {name: _shuffled(item, draw) for name, item in reversed(value.items())}
    return value


@given(st.lists(JSON, max_size=5), st.randoms(use_true_random=False))
def test_order_in_json_makes_no_difference_and_one_more_element_does(value: Any, draw: random.Random) -> None:
    text = json.dumps(value)
    assert alike_in_any_order(text, json.dumps(_shuffled(value, draw)))
    assert not alike_in_any_order(text, json.dumps([*value, None]))
    assert not alike_in_any_order(text, json.dumps({"in": value}))


ELEMENTS = st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=4)


def _array(items: list[Any]) -> str:
    """As Postgres prints it: every text quoted here, which it does where it must."""

    def element(item: Any) -> str:
        if isinstance(item, list):
            return _array(item)
        if item is None:
            return "NULL"
        escaped = str(item).replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'

    return "{" + ",".join(element(item) for item in items) + "}"


@given(
    st.lists(ELEMENTS, max_size=5) | st.lists(st.lists(ELEMENTS, min_size=2, max_size=2), max_size=3),
    st.data(),
)
def test_order_in_arrays_makes_no_difference_and_one_more_element_does(items: list[Any], data: Any) -> None:
    other = data.draw(st.permutations(items))
    assert alike_in_any_order(_array(items), _array(other))
    assert not alike_in_any_order(_array(items), _array([*items, "more"]))


@pytest.mark.parametrize(
    ("old", "new", "alike"),
    [
        ("{1,2}", "[2:3]={2,1}", True),
        ('{a,"NULL"}', "{NULL,a}", False),
        ("{a,a,b}", "{a,b,b}", False),
        ("{{1,2},{3,4}}", "{{4,3},{2,1}}", True),
        ("{{1,2},{3,4}}", "{{1,3},{2,4}}", False),
        ('[1, {"a": [true, 1.50]}]', '[{"a": [1.5, true]}, 1.0]', True),
        ("[1]", "[true]", False),
        ('{"a": 1, "a": [2, 3]}', '{"a": [3, 2]}', False),
        ('{"a": 1, "b": [2, 3]}', '{"b": [3, 2], "a": 1.0}', True),
        ("[12345678901234567890123456789012]", "[12345678901234567890123456789013]", False),
        ("[100]", "[1e2]", True),
        ("[0.0]", "[-0]", True),
        ("{a", "{a", False),
        ("no list", "no list", False),
        (None, "{}", False),
        ("[" * 100_000, "[" * 100_000, False),
    ],
)
def test_what_is_alike_in_any_order(old: str | None, new: str | None, alike: bool) -> None:
    assert alike_in_any_order(old, new) is alike


@pytest.mark.parametrize(
    ("names", "one"),
    [
        (["timestamptz", "timestamp with time zone", "timestamp(3) with time zone"], "timestamptz"),
        (["numeric", "numeric(12,2)", "decimal"], "numeric"),
        (["varchar", "character varying(20)"], "varchar"),
        (["int", "integer", "int4"], "int4"),
        (["text[]", "text[][]"], "text[]"),
        (["mood", "public.mood"], "mood"),
        (["billing.mood"], "billing.mood"),
    ],
)
def test_a_type_is_one_type_however_it_is_spelled(names: list[str], one: str) -> None:
    assert {canonical_type(name) for name in names} == {one}


@pytest.mark.parametrize(
    ("compare", "loc", "says"),
    [
        ("columns: {updated_at: ignored}", ("columns", "updated_at"), "expected exact, ignore, any, set or"),
        ("columns: {updated_at: true}", ("columns", "updated_at"), "expected exact, ignore"),
        ("columns: {updated_at: [ignore]}", ("columns", "updated_at"), "expected exact, ignore"),
        ("columns: {fee: {tolerance: 0}}", ("columns", "fee", "tolerance"), "greater than 0"),
        ("columns: {fee: {tolerance: -1}}", ("columns", "fee", "tolerance"), "greater than 0"),
        ("columns: {fee: {tolerance: .nan}}", ("columns", "fee", "tolerance"), "finite"),
        ("columns: {fee: {tolerance: '0.01'}}", ("columns", "fee", "tolerance"), "expected a number"),
        ("columns: {fee: {tolerance: true}}", ("columns", "fee", "tolerance"), "expected a number"),
        ("columns: {fee: {tolerence: 1}}", ("columns", "fee"), "`tolerance` is missing"),
        ("columns: {fee: {tolerance: 1, of: fee}}", ("columns", "fee", "of"), "unknown key of"),
        ("column: {fee: any}", ("column",), "did you mean columns?"),
        ("columns:", ("columns",), "no value is given"),
        ("types: {'no type': any}", ("types", "no type"), "is no type"),
        ("types: {'text; DROP': any}", ("types", "text; DROP"), "is no type"),
        ("types: {'int), (1': any}", ("types", "int), (1"), "is no type"),
        ("columns: {b.fee: any, public.b.fee: exact}", ("columns", "public.b.fee"), "b.fee is the same"),
        ("types: {int: any, integer: exact}", ("types", "integer"), "int is the same"),
    ],
)  # fmt: skip
def test_a_policy_that_is_none_is_refused_at_its_place(compare: str, loc: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValidationError) as caught:
        policies(compare)
    errors = caught.value.errors()
    assert [says in error["msg"] for error in errors if error["loc"] == loc] == [True], errors


CATALOG = {
    "public.bills": {name: (kind, kind) for name, kind in TYPES.items()},
    "billing.claims": {
        "total": ("money_amount", "numeric"),
        "tags": ("labels", "text[]"),
        "note": ("text", "text"),
    },
}


@pytest.mark.parametrize(
    "compare",
    [
        "columns: {updated_at: any, bills.fee: {tolerance: 1}, public.bills.extra: set}",
        "columns: {billing.claims.total: {tolerance: 1}, billing.claims.tags: set, tags: set}",
        "types: {timestamptz: any, 'numeric(3)': {tolerance: 1}, money_amount: {tolerance: 1}, jsonb: set}",
    ],
)
def test_policies_for_what_there_is_are_no_problem(compare: str) -> None:
    assert check_policies(policies(compare), CATALOG) == []


@pytest.mark.parametrize(
    ("compare", "loc", "says"),
    [
        ("columns: {updated: any}", ("columns", "updated"), "no column updated; did you mean updated_at?"),
        ("columns: {bils.fee: any}", ("columns", "bils.fee"), "no table bils; did you mean bills?"),
        ("columns: {bills.total: any}", ("columns", "bills.total"), "there is no column of bills total"),
        ("columns: {claims.total: any}", ("columns", "claims.total"), "there is no table claims"),
        ("columns: {note: {tolerance: 1}}", ("columns", "note"), "a tolerance is for numbers"),
        ("columns: {bills.fee: set}", ("columns", "bills.fee"), "`set` is for arrays and JSON"),
        ("types: {tsvector: any}", ("types", "tsvector"), "there is no column of type tsvector"),
        ("types: {text: {tolerance: 1}}", ("types", "text"), "a tolerance is for numbers"),
    ],
)
def test_policies_for_what_there_is_not_are_problems_at_their_place(
    compare: str, loc: tuple[str, ...], says: str
) -> None:
    (problem,) = check_policies(policies(compare), CATALOG)
    assert problem.loc == loc
    assert says in problem.message
