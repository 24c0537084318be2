"""What the HTML report is made of: the order of conversations, what findings point at, what is packed how."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from support.reports import QUOTE, USAGE, gallery, held, hostile, many, report_of, verdict
from support.shown import HOSTILE, table_of

from redteam_forker.changes import ChangeSet, RowChange
from redteam_harness.report.html import html_report
from redteam_harness.report.html.changes import BOUNDS, Rows, changes_data
from redteam_harness.report.html.conversation import conversation_data, list_entry
from redteam_harness.report.html.text import html_text, marked, said
from redteam_harness.report.html.words import percent, share_of
from redteam_rubrics import Finding
from redteam_rubrics.calibration import Calibration, Pair, measure

if TYPE_CHECKING:
    from pathlib import Path

    from support.reports import Held

_NODE = shutil.which("node")


def drawn(conversation: Held) -> dict[str, Any]:
    data, stored = report_of([conversation])
    return conversation_data(data["conversations"][0], stored[0][1])


def script_of(page: str) -> str:
    found = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def unpacked(page: str, id_: str) -> Any:
    found = re.search(rf'<script type="text/plain" id="{id_}">([^<]*)</script>', page)
    assert found is not None
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def index_of(page: str) -> list[dict[str, Any]]:
    found = re.search(r'<script type="application/json" id="index">([^<]*)</script>', page)
    assert found is not None
    entries: list[dict[str, Any]] = json.loads(found[1])
    return entries


def test_failures_come_first_the_gravest_of_them_before_others_and_passes_last() -> None:
    held_ = [
        held("c1", outcome="pass", verdicts=[verdict("a", "pass")]),
        held("c2", outcome="fail", verdicts=[verdict("a", "fail", severity=3)]),
        held("c3", outcome="infra-fault", cause="x", message="y"),
        held("c10", outcome="fail", verdicts=[verdict("a", "fail", severity=1)]),
        held("c9", outcome="fail", verdicts=[verdict("a", "fail", severity=1), verdict("b", "fail")]),
        held("c4", outcome="derailed"),
    ]
    page = html_report(*report_of(held_))
    assert [one["id"] for one in index_of(page)] == ["c9", "c10", "c2", "c3", "c4", "c1"]


def test_every_conversation_of_the_report_is_in_exactly_one_packed_part() -> None:
    data, stored = report_of(many(400))
    page = html_report(data, stored)
    index = index_of(page)
    parts = {number: unpacked(page, f"evidence-{number}") for number in {one["chunk"] for one in index}}
    assert len(parts) > 1  # so that opening one does not unpack all
    assert sorted(id_ for part in parts.values() for id_ in part) == sorted(one["id"] for one in index)
    for one in index:
        assert parts[one["chunk"]][one["id"]]["turns"]
    words = unpacked(page, "words")
    assert [f"caller {int(one['id'][1:])}." in text for one, text in zip(index, words, strict=True)] == [
        True
    ] * 400


def test_a_conversation_without_evidence_is_listed_and_one_without_an_outcome_is_not() -> None:
    data, stored = report_of(gallery())
    page = html_report(data, [*stored[1:], ("c999", stored[0][1])])
    index = {one["id"]: one["chunk"] for one in index_of(page)}
    assert index["c001"] is None
    assert index["c002"] is not None
    assert "c999" not in index


def test_the_same_run_gives_the_same_file() -> None:
    assert html_report(*report_of(gallery())) == html_report(*report_of(gallery()))


def test_the_policy_names_this_style_and_this_script_and_nothing_else() -> None:
    page = html_report(*report_of(gallery(), usage=USAGE))
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    style = re.search(r"<style>(.*?)</style>", page, re.DOTALL)
    assert style is not None
    directives = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    for name, content in (("style-src", style[1]), ("script-src", script_of(page))):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert directives.pop(name) == f"'sha256-{digest}'"
    assert directives == {
        "default-src": "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "require-trusted-types-for": "'script'",
        "trusted-types": "'none'",
    }
    assert not re.search(r"(src|href)=\"(?!#)", page)  # it refers to nothing but itself


def test_the_script_puts_no_text_into_the_page_as_markup() -> None:
    script = script_of(html_report(*report_of(many(1))))
    assert not re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|DOMParser", script)


@pytest.mark.skipif(_NODE is None, reason="no node on the PATH")
def test_the_script_is_valid(tmp_path: Path) -> None:
    assert _NODE is not None
    path = tmp_path / "report.js"
    path.write_text(script_of(html_report(*report_of(many(1)))), encoding="utf-8")
    subprocess.run([_NODE, "--check", str(path)], check=True, timeout=60)


def test_hostile_data_adds_no_element_to_the_page() -> None:
    page = html_report(*report_of(hostile(), suite="</title><script>alert(1)</script>"))
    packed = len(re.findall(r'<script type="text/plain" id="evidence-\d+">', page))
    own = packed + len(("index", "words", "the script itself"))
    assert page.count("<script") == page.count("</script>") == own
    assert "<img" not in page
    assert "<svg onload" not in page
    assert not set(page) & set("\x00\x07\x1b\x7f\x9b\u202e\u2066\u200b")


def test_findings_point_at_rows_by_key_at_keyless_rows_by_the_call_and_at_events() -> None:
    verdicts = {one["rule"]: one for one in drawn(gallery()[0])["verdicts"]}
    places = {rule: [found["at"] for found in one["findings"]] for rule, one in verdicts.items()}
    assert places["right-visit-kind"] == [["r0-0", "e5"]]
    assert places["looked-first"] == [["e5"]]
    assert places["keyless"] == [["r3-0"]]
    # A SELECT names no row: all changed rows of its tables are its evidence.
    assert verdicts["no-lines"]["at"] == [f"r2-{number}" for number in range(40)]
    assert verdicts["never-deleted"]["at"] == []


def test_of_keyless_rows_those_are_meant_that_the_named_call_wrote() -> None:
    def row(by: list[str]) -> dict[str, Any]:
        return {"op": "insert", "key": None, "by": by}

    changes = {"tables": [{"schema": "public", "table": "log", "rows": [row(["a"]), row(["b"]), row([])]}]}
    rows = Rows(changes, {"a": 3, "b": 5})
    finding = {"table": "log", "op": "insert"}
    assert rows.of({**finding, "event": 5}) == ["r0-1"]
    assert rows.of(finding) == ["r0-0", "r0-1", "r0-2"]
    assert rows.of({"table": "log", "event": 3}) == ["r0-0"]
    assert rows.of({"table": "log"}) == []  # about the table as such
    assert rows.of({"event": 3}) == []


def test_a_turn_has_its_calls_between_what_was_said_before_and_after() -> None:
    turn = drawn(gallery()[0])["turns"][1]
    assert [one["kind"] for one in turn["said"]] == ["reveal", "user"]
    assert [one["kind"] for one in turn["tools"]] == ["call", "external"]
    assert [one["kind"] for one in turn["after"]] == ["agent"]
    assert turn["tools"][0]["result"]["at"] == "e7"


def test_of_a_very_long_change_set_the_first_rows_are_in_the_page_and_the_others_are_counted() -> None:
    most = BOUNDS.rows or 0
    rows = [
        RowChange(op="insert", key={"id": str(number)}, old=None, new={"id": str(number)})
        for number in range(most + 7)
    ]
    changes = ChangeSet(tables=(table_of(rows, {"id": "bigint"}),)).to_json()
    table = changes_data(changes, [])["tables"][0]
    assert (len(table["rows"]), table["more"]) == (most, 7)
    ids = [row["id"] for row in table["rows"]]
    assert Rows(changes, {}).of_tables(["t"]) == ids  # and no finding points at one that is not there


@pytest.mark.parametrize(
    ("text", "quotes", "expected"),
    [
        ("I booked you.", [], ["I booked you."]),
        ("I booked you.", ["booked"], ["I ", "booked", " you."]),
        ("I  booked\nyou.", ["BOOKED you"], ["I  ", "booked\nyou", "."]),
        ("aXbXc", ["x"], ["a", "X", "b", "X", "c"]),
        ("one two three", ["one two", "two three"], ["", "one two three", ""]),
        ("one two three", ["two", "one two three"], ["", "one two three", ""]),
        ("a.b", ["a?b", "", "  "], ["a.b"]),
    ],
)
def test_quotes_are_marked_where_they_stand_however_they_are_spelled(
    text: str, quotes: list[str], expected: list[str]
) -> None:
    assert marked(text, quotes) == expected


@pytest.mark.parametrize("value", HOSTILE)
def test_marking_a_quote_loses_no_character(value: str) -> None:
    text = said(f"before {value} after {value}")
    assert "".join(marked(text, [value, value[:3], "after"])) == text


def test_a_quote_of_a_judge_is_marked_in_the_event_that_it_names() -> None:
    turn = drawn(gallery()[0])["turns"][1]
    assert turn["after"][0]["text"][1] == QUOTE


def test_a_line_says_why_a_conversation_ended_as_it_did() -> None:
    data, _ = report_of(gallery())
    lines = {one["id"]: list_entry(one, 0)["line"] for one in data["conversations"]}
    assert lines["c001"].startswith("`reschedule` in turn 2 changed kind")
    assert lines["c003"] == "the server went away"
    assert lines["c005"] == "nobody knows"
    assert lines["c004"] == "the script is played to its end"


def test_the_gate_on_everything_comes_after_rules_of_its_severity() -> None:
    rules = [verdict(rule, "fail") for rule in ("collateral", "zebra", "apple")]
    found = drawn(held("c1", outcome="fail", verdicts=[*rules, verdict("late", "fail", severity=2)]))
    assert [one["rule"] for one in found["verdicts"]] == ["apple", "zebra", "collateral", "late"]


def test_no_share_is_rounded_to_all_or_nothing_or_shown_without_what_it_rests_on() -> None:
    assert [percent(share) for share in (0, 0.001, 0.5, 0.999, 1)] == [
        "0 %",
        "under 1 %",
        "50 %",
        "over 99 %",
        "100 %",
    ]
    assert share_of(0, 0, None) == "no rate: nothing counts"
    interval = {"confidence": 0.95, "low": 0.43, "high": 0.82}
    assert share_of(13, 20, interval) == "65 %, 95 % interval 43 to 82 %"


def test_severity_1_has_counts_and_no_rate() -> None:
    page = html_report(*report_of(gallery()))
    row = re.search(r'<tr><th scope="row"><a href="#rule=right-visit-kind">.*?</tr>', page)
    assert row is not None
    assert "1 of 3" in row[0]
    assert "%" not in row[0]


def test_what_a_rate_leaves_out_stands_beside_it_with_what_it_could_change() -> None:
    page = html_report(*report_of(gallery(), not_held=["c008"]))
    assert "Not counted: 1 derailed, 1 infra-fault, 1 judge-fault, 1 not-held." in page
    assert "Had all of these failed, 25 % would have passed; had all passed, 75 %." in page


def test_a_run_without_a_verdict_has_no_rate() -> None:
    page = html_report(*report_of([held("c1", outcome="infra-fault", cause="x", message="y")]))
    assert "No conversation has a verdict, so there is no rate." in page
    assert not re.search(r"\d %", page.partition("<script")[0].partition("<main")[2])


@pytest.mark.parametrize(
    ("model", "state"),
    [("judge-model-1", "yes"), ("judge-model-0", "another model or prompt than those that answered here")],
)
def test_what_is_known_of_the_judge_stands_beside_what_it_said(model: str, state: str) -> None:
    pairs = [Pair(severity=3, human="fail", judge=judge, length=9) for judge in ("fail", "fail", "pass")]
    known = Calibration(
        rule="polite",
        model=model,
        prompt="ab" * 32,
        at="2026-11-30T12:00:00Z",
        who=("ada",),
        runs=("7f3kqa",),
        labels="cd" * 32,
        figures=measure(pairs),
    )
    page = html_report(*report_of(gallery(), calibrations=[known]))
    row = re.search(r'<tr><th scope="row"><a href="#rule=polite">polite</a></th><td>(?!<).*?</tr>', page)
    assert row is not None
    cells = re.findall(r"<td[^>]*>(.*?)</td>", row[0])
    assert cells[:2] == [state, "2 of 3"]
    assert cells[2].startswith("67 %, 95 % interval")
    assert cells[4:] == ["1", "0"]  # passed where people did not, and the reverse
    assert "never: how right it is is not known" in page  # of the other rule that it judged


def test_repetitions_have_their_share_or_say_why_there_is_none() -> None:
    whole = [held("c1"), held("c1.2", outcome="fail", verdicts=[verdict("a", "fail")])]
    page = html_report(*report_of(whole, repeat=2))
    assert re.search(r'<th scope="row">2 of 2</th><td class="number">1</td><td>0 %, 95 % interval', page)
    lost = [held("c1"), held("c1.2", outcome="infra-fault", cause="x", message="y")]
    page = html_report(*report_of(lost, repeat=2))
    assert "undefined: some were not judged so often" in page
    assert '<h2 id="repeats-title">' not in html_report(*report_of(gallery()))


def test_text_of_other_scripts_keeps_its_own_direction() -> None:
    assert html_text("a < b") == "a &lt; b"
    assert html_text("שלום (x)") == "<bdi>שלום (x)</bdi>"
    assert html_text("\u202ex") == "<bdi>⟨U+202E⟩x</bdi>"


def test_a_finding_about_a_row_too_many_to_show_is_still_told() -> None:
    finding = Finding(text="gone", table="nowhere", op="insert", key={"id": "1"})
    found = drawn(held("c1", outcome="fail", verdicts=[verdict("r", "fail", findings=(finding,))]))
    assert found["verdicts"][0]["findings"] == [{"text": "gone", "quote": None, "at": []}]
