"""Scripts from cases and rows, and the checks of a case before anything runs."""

from __future__ import annotations

import datetime as dt

import pytest
from pydantic import ValidationError
from support.personas import DISPOSITIONS, make_case, make_script

from redteam_personas import (
    Fact,
    OfflineSpec,
    Persona,
    Reveal,
    Script,
    build_script,
    check_case,
    check_offline,
)
from redteam_sdk.errors import UsageError

COLUMNS = ("id", "full_name", "date_of_birth", "insurance")


def test_a_script_holds_the_four_parts_and_the_cap() -> None:
    persona = Persona(key="7", row={"id": 7, "born": dt.date(1984, 3, 7), "phone": None})
    case = make_case(
        {"born": "when asked", "phone": {"reveal": "at once", "asked_by": ["phone"]}},
        demand="Move visit {id}.",
        ends="when it is moved",
        cap=6,
    )
    assert build_script(persona, case, DISPOSITIONS["evasive"]) == Script(
        persona=persona,
        demand="Move visit 7.",
        facts=(
            Fact(
                name="born",
                value="1984-03-07",
                reveal=Reveal(kind="when pressed", number=1),
                asked_by=("born", "birth", "birthday", "birthdate", "dob"),
            ),
        ),
        missing={"phone": ("phone",)},
        ends="when it is moved",
        disposition=DISPOSITIONS["evasive"],
        cap=6,
    )


def test_a_case_that_says_no_end_gets_one() -> None:
    assert "clear that it will not" in make_script().ends


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (make_case({"ful_name": "at once"}), r"fact 'ful_name' is no column.*did you mean 'full_name'"),
        (make_case(demand="I am {name}."), r"demand: \{name\} is no column of the cast"),
        (make_case({"insurance": "when asked"}, demand="Keep {insurance}."), r"revealed 'when asked'"),
        (make_case({"insurance": "never"}, ends="when {insurance} is said"), r"ends: \{insurance\}"),
    ],
)
def test_a_case_that_does_not_fit_the_cast_is_refused(case: object, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refusal:
        check_case(case, COLUMNS)  # type: ignore[arg-type]
    assert "case 'case-1'" in str(refusal.value)


@pytest.mark.parametrize(
    ("offline", "says"),
    [
        ({"says": ["Hello.", "I am {name}."]}, r"offline.says 2: \{name\} is no column"),
        ({"says": ["Born {date_of_birth}."]}, r"\{date_of_birth\} is a fact revealed 'when asked'"),
        ({"replies": [{"to": "born", "say": "{date_of_birth}"}]}, r"offline.replies 1"),
    ],
)
def test_an_offline_line_may_not_give_away_a_held_back_fact(offline: object, says: str) -> None:
    case = make_case({"full_name": "at once", "date_of_birth": "when asked"})
    with pytest.raises(UsageError, match=says):
        check_offline(OfflineSpec.model_validate(offline), case, COLUMNS)


def test_an_offline_line_may_name_what_is_told_at_once_and_what_is_no_fact() -> None:
    spec = OfflineSpec.model_validate({"says": ["I am {full_name}, number {id}."]})
    case = make_case({"full_name": "at once"})
    check_offline(spec, case, COLUMNS)
    assert spec.fill(make_script().persona).says[0].text == "I am Ada Lindqvist, number 1207."


@pytest.mark.parametrize(
    ("data", "loc"),
    [
        ({"says": [{"text": "a", "when": "("}]}, ("says", 0, "when")),
        ({"replies": [{"to": "[", "say": "b"}]}, ("replies", 0, "to")),
        ({"replies": [{"to": "a"}]}, ("replies", 0, "say")),
        ({"says": [{"txt": "a"}]}, ("says", 0, "text")),
        ({"lines": []}, ("lines",)),
    ],
)
def test_a_wrong_offline_block_is_refused_at_its_key(data: object, loc: tuple[object, ...]) -> None:
    with pytest.raises(ValidationError) as refusal:
        OfflineSpec.model_validate(data)
    assert refusal.value.errors()[0]["loc"] == loc
