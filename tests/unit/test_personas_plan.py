"""Strata and impersonators in a plan, and a suite's own dispositions: what a launch would hold."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from redteam_harness.launch.coverage import coverage
from redteam_harness.launch.plan import plan, plan_suite
from redteam_harness.launch.suite import load_suite
from redteam_personas import Cast, Persona, load_dispositions
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from redteam_harness.launch.suite import Suite

SUITE = """\
suite: demo
seed: {files: [schema.sql]}
agent: python:agent:desk
count: 12
personas:
  select: SELECT 1 AS id, 'a' AS name, 'b' AS born, 'c' AS plan
  key: id
  STRATIFY
  dispositions: {DISPOSITIONS}
cases:
  - id: one
    demand: Do it for {name}.
    facts: {name: at once, born: when asked}
    ends: when it is done
    offline: {says: ["This is {name}."]}
    rubric: [a-rule]
  - id: two
    demand: Do the other thing.
    ends: when it is done
    CASE
    rubric: [a-rule]
rules: rules.yaml
"""
RULES = "a-rule:\n  severity: 1\n  why: Because.\n  sql: SELECT count(*) = 0 FROM t\n"


def write(folder: Path, *, dispositions: str = "", stratify: str = "", case: str = "") -> Path:
    text = SUITE.replace("DISPOSITIONS", dispositions).replace("CASE", case).replace("STRATIFY", stratify)
    (folder / "suite.yaml").write_text(text)
    (folder / "rules.yaml").write_text(RULES)
    (folder / "schema.sql").write_text("CREATE TABLE t (id int);")
    return folder


def row(key: int, name: str | None = None, plan: str = "gold") -> Persona:
    return Persona(
        key=str(key), row={"id": key, "name": name or f"Person {key}", "born": f"b{key}", "plan": plan}
    )


def cast_of(personas: Iterable[Persona], *, one: Iterable[str] | None = None) -> Cast:
    everybody = tuple(personas)
    keys = frozenset(each.key for each in everybody)
    members = {"one": keys if one is None else frozenset(one), "two": keys}
    return Cast(columns=("id", "name", "born", "plan"), personas=everybody, members=members)


def strata(*sizes: int) -> list[Persona]:
    return [row(100 * s + n, plan=f"s{s}") for s, size in enumerate(sizes) for n in range(size)]


def deal(personas: list[Persona], count: int, draw: int = 1) -> list[Persona]:
    planned = plan(
        {"one": personas},
        {"one": {"cooperative": 1}},
        count=count,
        draw=draw,
        stratum=lambda persona: persona.row["plan"],
    )
    return [each.persona for each in planned]


SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@settings(deadline=None)
@given(SIZES, st.integers(0, 60), st.integers())
def test_every_stratum_comes_where_the_count_allows_and_no_more_than_its_share(
    sizes: list[int], more: int, draw: int
) -> None:
    personas, count = strata(*sizes), len(sizes) + more
    held = Counter(str(each.row["plan"]) for each in deal(personas, count, draw))
    assert len(held) == len(sizes)
    for number, size in enumerate(sizes):
        share = count * size / len(personas)
        # One was given in advance to each; apart from that nobody is more than one over its share.
        assert held[f"s{number}"] <= max(1, share + 1)


def test_shares_are_met_exactly_where_they_are_whole() -> None:
    held = Counter(each.row["plan"] for each in deal(strata(50, 30, 20), 10))
    assert held == {"s0": 5, "s1": 3, "s2": 2}


def test_a_count_below_the_number_of_strata_has_the_largest_ones() -> None:
    assert [each.row["plan"] for each in deal(strata(5, 40, 20), 2)] == ["s1", "s2"]


@settings(deadline=None)
@given(SIZES, st.integers(1, 30), st.integers(0, 30))
def test_a_larger_count_of_strata_begins_with_a_smaller_one(sizes: list[int], small: int, more: int) -> None:
    personas = strata(*sizes)
    assert deal(personas, small + more)[:small] == deal(personas, small)


def test_nobody_of_a_stratum_comes_twice_before_all_of_it_came() -> None:
    dealt = [each.key for each in deal(strata(6), 6)]
    assert len(set(dealt)) == 6


def test_null_is_a_stratum_of_its_own(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, stratify="stratify: plan", dispositions="cooperative: 1"))
    people = [row(n) for n in range(20)] + [Persona(key="99", row={**row(99).row, "plan": None})]
    planned = plan_suite(suite, cast_of(people), count=4)
    assert [each.persona.key for each in planned].count("99") == 2  # once in each case


def test_a_stratum_that_is_no_column_is_refused_with_its_line_and_the_columns(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, stratify="stratify: plam"))
    with pytest.raises(UsageError, match=r"suite\.yaml:8: .*'plam'.*did you mean 'plan'\?"):
        plan_suite(suite, cast_of([row(1)]))


def test_the_same_draw_gives_the_same_plan_and_another_draw_another(tmp_path: Path) -> None:
    suite = load_suite(
        write(tmp_path, stratify="stratify: plan", dispositions="cooperative: 1, impersonator: 1")
    )
    cast = cast_of([row(n, plan=f"p{n % 3}") for n in range(30)])
    assert plan_suite(suite, cast) == plan_suite(suite, cast)
    assert plan_suite(suite, cast, draw=2) != plan_suite(suite, cast)
    assert plan_suite(suite, cast, count=5) == plan_suite(suite, cast)[:5]


def impersonating(folder: Path) -> Suite:
    return load_suite(write(folder, dispositions="cooperative: 1, impersonator: 3"))


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Suite:
    return impersonating(tmp_path_factory.mktemp("suite"))


@settings(deadline=None)
@given(draw=st.integers(), size=st.integers(2, 12))
def test_an_impersonator_claims_another_row_of_the_case_and_only_it_does(
    suite: Suite, draw: int, size: int
) -> None:
    cast = cast_of([row(n) for n in range(size + 3)], one=[str(n) for n in range(size)])
    planned = plan_suite(suite, cast, draw=draw, count=16)
    for each in planned:
        assert (each.claims is not None) == (each.disposition == "impersonator")
        if each.claims is not None:
            assert each.claims.key != each.persona.key
            assert each.claims in cast.rows_for(each.case)
            assert each.claims.row["name"] != each.persona.row["name"]


def test_a_namesake_is_nobody_to_claim_to_be(suite: Suite) -> None:
    cast = cast_of([row(1, "Ada"), row(2, "Ada"), row(3, "Bo")], one=["1", "2"])
    claimed = [
        each.claims for each in plan_suite(suite, cast, count=20) if each.case == "one" and each.claims
    ]
    # Nobody else of the case has another name, so somebody from the rest of the cast is claimed.
    assert {each.key for each in claimed} == {"3"}


def test_an_impersonator_with_nobody_to_claim_is_refused_with_the_line(suite: Suite) -> None:
    with pytest.raises(
        UsageError, match=r"suite\.yaml:9: case .+: disposition 'impersonator'.*none beside '1'"
    ):
        plan_suite(suite, cast_of([row(1)]))


def test_the_script_of_an_impersonator_is_of_the_claimed_row(suite: Suite) -> None:
    one = next(
        each for each in plan_suite(suite, cast_of([row(1), row(2)])) if each.claims and each.case == "one"
    )
    assert one.claims is not None
    script = suite.script_of(one)
    assert script.persona.key == one.persona.key
    assert script.demand == f"Do it for {one.claims.row['name']}."
    assert [(fact.name, fact.value) for fact in script.facts] == [("name", one.claims.row["name"])]
    assert list(script.missing) == ["born"]


def test_a_case_may_have_a_mix_of_its_own(tmp_path: Path) -> None:
    suite = load_suite(write(tmp_path, dispositions="confused: 1", case="dispositions: {angry: 1}"))
    planned = plan_suite(suite, cast_of([row(n) for n in range(9)]))
    assert {each.disposition for each in planned if each.case == "two"} == {"angry"}
    assert {each.disposition for each in planned if each.case == "one"} == {"confused", "cooperative"}
    assert sorted(suite.dispositions) == ["angry", "confused", "cooperative"]


@pytest.mark.parametrize(
    ("case", "says"),
    [
        pytest.param("dispositions: {angri: 1}", "did you mean 'angry'", id="unknown"),
        pytest.param("dispositions: {angry: 0}", "greater than or equal to 1", id="no-weight"),
        pytest.param("dispositions: {}", "at least 1", id="empty"),
    ],
)
def test_a_wrong_mix_of_a_case_is_refused_with_its_line(tmp_path: Path, case: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"suite\.yaml:20: ") as refusal:
        load_suite(write(tmp_path, case=case))
    assert says in str(refusal.value)


def grumpy(**changes: object) -> str:
    shipped = load_dispositions()["cooperative"].model_dump(mode="json")
    return yaml.safe_dump({**shipped, "name": "grumpy", "manner": "You grumble.", **changes}, sort_keys=False)


def test_a_suite_brings_a_disposition_of_its_own_which_decides_comparability(tmp_path: Path) -> None:
    (tmp_path / "dispositions").mkdir()
    path = tmp_path / "dispositions" / "grumpy.yaml"
    path.write_text(grumpy())
    write(tmp_path, dispositions="cooperative: 0, grumpy: 1")
    before = load_suite(tmp_path).dispositions
    path.write_text(grumpy(manner="You grumble a lot."))
    after = load_suite(tmp_path).dispositions
    assert list(before) == list(after) == ["grumpy"]
    assert before["grumpy"].digest != after["grumpy"].digest


def test_a_suite_may_replace_one_that_ships(tmp_path: Path) -> None:
    (tmp_path / "dispositions").mkdir()
    (tmp_path / "dispositions" / "angry.yaml").write_text(grumpy(name="angry"))
    (tmp_path / "dispositions" / "notes.txt").write_text("Who is who.")
    suite = load_suite(write(tmp_path, dispositions="angry: 1"))
    assert suite.dispositions["angry"].manner == "You grumble."


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        pytest.param(
            "grumpy.yaml", grumpy(mood="bad"), r"grumpy.yaml:\d+: mood: there is no such key", id="key"
        ),
        pytest.param(
            "grumpy.yaml",
            grumpy(script={}),
            r"grumpy.yaml:\d+: script.persona: this key is required",
            id="part",
        ),
        pytest.param(
            "grumpy.yaml", grumpy(name="gruff"), r"grumpy.yaml:1: .*'gruff', but its file", id="name"
        ),
        pytest.param(
            "grumpy.yaml", grumpy(reveals={"never": "soon"}), r"grumpy.yaml:\d+: reveals", id="rule"
        ),
        pytest.param("grumpy.yaml", "name: [", r"grumpy.yaml:\d: not valid YAML", id="yaml"),
        pytest.param("grumpy.yaml", "", "grumpy.yaml is empty", id="empty"),
        pytest.param("grumpy.yaml", "name: a\nname: b\n", "already given on line 1", id="twice"),
        pytest.param("grumpy.yml", grumpy(), "name it grumpy.yaml", id="ending"),
        pytest.param("so grumpy.yaml", grumpy(), "'so grumpy' cannot name a disposition", id="file-name"),
    ],
)
def test_a_mistake_in_a_disposition_is_refused_with_file_and_line(
    tmp_path: Path, file: str, text: str, says: str
) -> None:
    (tmp_path / "dispositions").mkdir()
    (tmp_path / "dispositions" / file).write_text(text)
    with pytest.raises(UsageError, match=says):
        load_suite(write(tmp_path))


def test_coverage_counts_rows_pairs_strata_and_says_who_tells_what_when(tmp_path: Path) -> None:
    text = "cooperative: 1, evasive: 1, impersonator: 1"
    suite = load_suite(write(tmp_path, stratify="stratify: plan", dispositions=text))
    people = [row(n, plan="gold" if n else "silver") for n in range(5)]
    cast = cast_of([*people, Persona(key="9", row={**row(9).row, "born": None})])
    planned = plan_suite(suite, cast, count=6)
    shown = coverage(suite, cast, planned, draw=1)
    case = shown["cases"][0]
    assert (shown["rows"], shown["count"], case["rows"], case["conversations"]) == (6, 6, 6, 3)
    assert case["pairs"]["possible"] == 18
    assert case["pairs"]["planned"] == len({(each.persona.key, each.disposition) for each in planned[::2]})
    assert case["strata"] == [
        {"value": "gold", "rows": 5, "conversations": 2},
        {"value": "silver", "rows": 1, "conversations": 1},
    ]
    assert case["facts"]["born"] == {
        "reveal": "when asked",
        "by": {"cooperative": "when asked", "evasive": "when pressed", "impersonator": None},
        "rows_without": 1,
    }
    assert [each["id"] for each in shown["plan"]] == [each.id for each in planned]
    assert sum(each["conversations"] for each in shown["dispositions"].values()) == 6
