"""Renderings of stored runs: that they agree, that nothing in the data breaks them, that they fit."""

from __future__ import annotations

import html
import json
import random
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from support.report_runs import ENDED, Held, failing, verdict, write_run

from redteam_forker.changes.render import visible
from redteam_harness.evidence.journal import Journal
from redteam_harness.models.usage import Spent
from redteam_harness.report.data import report_data
from redteam_harness.report.markdown import SUMMARY_BYTES, markdown
from redteam_harness.report.rendering import FILES, Format, rendered, write_reports
from redteam_harness.report.schema import report_schema
from redteam_harness.report.stored import Ended, read_report, stored_finished
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from redteam_harness.evidence.run import RunDirectory

FORMATS: tuple[Format, ...] = ("terminal", "markdown", "html", "json", "junit")
MIXED = [
    Held(verdicts=[verdict("own-rows-only", "pass"), verdict("polite", "pass", severity=3)]),
    failing(),
    Held(outcome="infra-fault", cause="hang", message="no answer for 60 s"),
    Held(outcome="judge-fault", cause="undecided", verdicts=[verdict("own-rows-only", "unclear")]),
    failing("again", case="other", disposition="angry"),
]
HOSTILE = [
    "<script>alert(1)</script>",
    "]]>--><!--",
    "a | b \\| c `code` **bold** _it_ ~~no~~",
    "[link](http://evil.example) ![img](x) <http://a.example> www.evil.example @somebody #1",
    "\x1b[2J\x1b]0;title\x07 \u202e \x00 \udcff \u2028 \ufffe",
    "# head\n\n- item\n\n</details></code></table>\n\n    code",
    "&lt;b&gt; &amp; &#60; $x^2$ :smile: {% raw %}",
    "-" * 5,
]


def run_of(held: list[Held], tmp_path: Path, **more: Any) -> RunDirectory:
    return write_run(tmp_path, held, **more)


def test_a_report_made_again_from_the_evidence_is_the_one_that_the_launch_wrote(tmp_path: Path) -> None:
    # Each of these is nothing once it is rounded for the journal, and both together are not.
    little = [Spent(role=role, model="m", calls=1, usd=4.9e-7) for role in ("actor", "agent")]
    ended = Ended(forks=5, seconds=1.23456, interrupted=False, stopped=None, usage=tuple(little))
    run = run_of(MIXED, tmp_path, ended=None)
    write_reports(run, read_report(run, ended))  # as the launch does it, before it closes the journal
    with Journal(run.journal, resume=True) as journal:
        journal.append("run_ended", exit_code=1, finished=5, **ended.to_json())
    again = read_report(run)
    for format_, name in FILES.items():
        assert rendered(format_, run, again) == (run.path / name).read_text(encoding="utf-8"), format_


def test_making_a_report_writes_nothing_into_the_run(tmp_path: Path) -> None:
    run = run_of(MIXED, tmp_path)

    def state() -> dict[str, tuple[int, bytes]]:
        return {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
            for path in sorted(run.path.rglob("*"))
        }

    before = state()
    for format_ in FORMATS:
        rendered(format_, run, read_report(run))
    assert state() == before


def test_a_run_that_has_not_ended_is_reported_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = run_of(MIXED[:2], tmp_path, not_held=2, ended=None)
    found = read_report(run)
    assert (found.planned, len(found.finished), list(found.not_held)) == (4, 2, ["c003", "c004"])
    assert "still going on, or it was killed" in rendered("terminal", run, found)
    assert found.exit_code == 1


def test_an_interrupted_run_says_so_and_still_lists_every_reason(tmp_path: Path) -> None:
    ended = Ended(forks=2, seconds=1.0, interrupted=True, stopped=None, usage=())
    run = run_of(MIXED[:2], tmp_path, not_held=1, ended=ended)
    shown = rendered("terminal", run, read_report(run))
    assert "exit 130: interrupted; 2 conversations finished and kept" in shown
    assert re.search(r"rule-failed +2 rules failed: collateral, own-rows-only", shown)
    assert re.search(
        r"without-verdict +1 of 3 planned conversations has no verdict: 1 not held; the limit is 0", shown
    )


def test_a_conversation_that_is_to_be_held_again_does_not_count_as_finished(tmp_path: Path) -> None:
    run = run_of(MIXED[:3], tmp_path, ended=None)
    with Journal(run.journal, resume=True) as journal:
        journal.append("run_resumed", launch=2, finished=2, cut_off=[], retried=["c003"])
    assert read_report(run).not_held == ("c003",)


def test_a_journal_that_was_changed_makes_no_report(tmp_path: Path) -> None:
    run = run_of(MIXED, tmp_path)
    run.journal.write_text(run.journal.read_text().replace('"fail"', '"pass"', 1))
    with pytest.raises(EnvironmentFault, match="chain is broken"):
        read_report(run)


def test_a_run_that_never_began_has_no_report(tmp_path: Path) -> None:
    run = run_of([], tmp_path)
    run.journal.unlink()
    with pytest.raises(UsageError, match="nothing to report"):
        read_report(run)


def test_verdicts_of_a_rejudging_do_not_change_what_the_launch_found(tmp_path: Path) -> None:
    run = run_of(MIXED[:1], tmp_path)
    run.append_verdicts(
        [{"conversation": "c001", "attempt": 1, "rejudging": 1, **verdict("own-rows-only", "fail")}]
    )
    assert read_report(run).exit_code == 0


def test_a_failed_conversation_carries_what_made_it_fail(tmp_path: Path) -> None:
    run = run_of(MIXED, tmp_path)
    by_id = {one["id"]: one for one in report_data(read_report(run))["conversations"]}
    assert by_id["c002"]["attribution"] == {
        "rule": "own-rows-only",
        "severity": 1,
        "text": "`reschedule` in turn 1 changed note in visits (117): moved.",
        "event": 1,
        "turn": 1,
        "call": "a",
        "tool": "reschedule",
        "table": "visits",
        "key": {"id": "117"},
        "consequences": ["collateral"],
        "independent": [],
    }
    assert by_id["c001"]["attribution"] is None
    for format_ in FORMATS:
        assert "changed note in visits" in rendered(format_, run, read_report(run)) or format_ in (
            "terminal",  # one rule is left to show, and its row line says the same
            "html",  # compressed
        )


def test_where_several_rules_failed_the_first_event_is_told_and_what_follows_from_it(tmp_path: Path) -> None:
    one = failing()
    said = verdict("promised", "fail", severity=2, findings=[{"text": "The agent said moved.", "event": 3}])
    owed = verdict("asked", "fail", severity=2, findings=[{"text": "The agent did not ask."}])
    run = run_of([replace(one, verdicts=[*one.verdicts, said, owed])], tmp_path)
    found = read_report(run)
    for text in (rendered("terminal", run, found), rendered("markdown", run, found)):
        shown = html.unescape(re.sub(r"</?code>", "", text))
        assert "`reschedule` in turn 1 changed note in visits (117): moved." in shown
        assert "promised (severity 2, follows from the first)" in shown
        assert "asked (severity 2)" in shown


def test_the_json_is_as_its_schema_says_and_the_schema_names_every_key(tmp_path: Path) -> None:
    schema = _closed(report_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    plants = {"note": {"planted": True, "shows": "moved", "obeyed": ["own-rows-only"]}}
    asked = {"model": "m", "prompt": "ab", "votes": {"pass": 1}}
    judged = verdict("polite", "pass", source="judge", asked=asked, findings=[{"text": "t", "quote": "q"}])
    held = [*MIXED, Held(verdicts=[judged]), failing(extra={"plants": plants})]
    found = read_report(run_of(held, tmp_path / "a", not_held=1, gates={"min_judged": 9, "calibration": {}}))
    assert [*validator.iter_errors(json.loads(json.dumps(report_data(found))))] == []
    assert [*validator.iter_errors(report_data(read_report(run_of([], tmp_path / "b"))))] == []
    assert found.attacks
    assert [*validator.iter_errors({**report_data(found), "version": 1})]


def _closed(schema: Any) -> Any:
    """The schema with no key allowed that it does not name."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    return {**closed, "additionalProperties": False} if "properties" in closed else closed


OUTCOMES = ["pass", "fail", "infra-fault", "sim-fault", "judge-fault", "derailed"]


def _held(outcome: str) -> Held:
    match outcome:
        case "pass":
            return MIXED[0]
        case "fail":
            return failing()
        case _:
            return Held(outcome=outcome, cause="hang", message="no answer")


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(OUTCOMES), max_size=8), st.integers(0, 3))
def test_every_rendering_has_the_totals_of_the_json(outcomes: list[str], not_held: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder), [_held(outcome) for outcome in outcomes], not_held=not_held)
        found = read_report(run)
        data = report_data(found)
        text = {format_: rendered(format_, run, found) for format_ in FORMATS}
    failed, lost = outcomes.count("fail"), sum(outcome not in ("pass", "fail") for outcome in outcomes)
    assert json.loads(text["json"]) == json.loads(json.dumps(data))
    assert data["outcomes"] == {name: outcomes.count(name) for name in sorted(set(outcomes))}
    suite = ElementTree.fromstring(text["junit"].encode())[0]
    assert [int(suite.get(name, "")) for name in ("tests", "failures", "errors")] == [
        data["planned"],
        failed,
        lost + not_held,
    ]
    assert f"passed       {found.rate.words()}\n" in text["terminal"]
    assert f"| passed | {found.rate.words()} |" in text["markdown"]
    for format_ in ("terminal", "markdown"):
        assert re.search(rf"severity 1 [| ]+{failed} conversation", text[format_])
    if failed:
        assert f"### {failed} failed conversation" in text["markdown"]
    reasons = {(reason["code"], reason["rule"]) for reason in data["gates"]["reasons"]}
    for code, rule in reasons:
        assert all(code in text[format_] and (rule or "") in text[format_] for format_ in FORMATS), code
    _no_bare_rate(text["terminal"])
    _no_bare_rate(text["markdown"])


def _no_bare_rate(text: str) -> None:
    for line in text.splitlines():
        if re.search(r"\d ?(%|&#37;)", line):
            if "so there is no rate" in line:
                assert "left out: " in line, line
                continue
            assert re.search(r"\d of \d", line), line
            assert "interval" in line, line
            assert ("left out: " in line) or not re.search(r"infra|sim|judge-fault|derailed|not.held", line)


@pytest.mark.parametrize("evil", HOSTILE)
def test_what_stands_in_the_data_means_nothing_to_any_rendering(evil: str, tmp_path: Path) -> None:
    held = [
        failing(evil, rule=evil, case=evil, persona=evil, disposition=evil),
        Held(outcome="infra-fault", cause="hang", message=evil),
        Held(verdicts=[verdict(evil, "pass", severity=2)], case="b"),
    ]
    plain = [
        failing("x", rule="x", case="x", persona="x", disposition="x"),
        Held(outcome="infra-fault", cause="hang", message="x"),
        Held(verdicts=[verdict("x", "pass", severity=2)], case="b"),
    ]
    run = run_of(held, tmp_path / "evil", notice=evil, suite=evil)
    tame = run_of(plain, tmp_path / "tame", notice="x", suite="x")
    shown = {format_: rendered(format_, run, read_report(run)) for format_ in FORMATS}
    _has_no_control(shown["terminal"])
    _has_no_control(shown["markdown"])
    assert len([*ElementTree.fromstring(shown["junit"].encode()).iter("testcase")]) == 3 + 2
    assert json.loads(shown["json"])["suite"] == evil
    assert _structure(shown["markdown"]) == _structure(rendered("markdown", tame, read_report(tame)))
    assert visible(evil) in _text_of(shown["markdown"])
    assert shown["html"].count("</html>") == 1


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(), min_size=1, max_size=60))
def test_any_text_stays_the_text_that_it_is_in_markdown_and_junit(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = write_run(Path(folder), [failing(text, case=text)], suite=text)
        found = read_report(run)
        written, junit = rendered("markdown", run, found), rendered("junit", run, found)
    written.encode()
    assert visible(text).strip() in _text_of(written)
    assert len(list(ElementTree.fromstring(junit.encode()).iter("testcase"))) == 3


def _has_no_control(text: str) -> None:
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\ud800-\udfff]", text)
    text.encode()


_MARKDOWN = MarkdownIt("commonmark").enable("table").enable("strikethrough")


def _structure(text: str) -> list[str]:
    """What a reader of Markdown makes of a text, apart from its words."""
    found = []
    for token in _MARKDOWN.parse(text):
        found.append(token.type)
        found += [child.type for child in token.children or () if child.type != "text"]
        if token.type == "html_block":
            found += re.findall(r"</?\w+", token.content)
        found += [child.content for child in token.children or () if child.type == "html_inline"]
    return found


def _text_of(text: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", _MARKDOWN.render(text)))


def test_a_run_of_thousands_still_fits_into_a_jobs_summary(tmp_path: Path) -> None:
    run = run_of([failing("é" * 500)] * 40, tmp_path)
    found = read_report(run)
    many = replace(found, finished=[replace(one, id=f"c{n}") for n in range(100) for one in found.finished])
    trace = next(iter(stored_finished(run, found)))[1].events
    written = markdown(many, lambda _: trace)
    assert len(written.encode()) <= SUMMARY_BYTES
    (more,) = re.findall(r"… (\d+) failed conversations more: report\.html has all of them\.", written)
    assert written.count("<summary><code>c") + int(more) == 4000
    small = markdown(many, lambda _: trace, most_bytes=20_000)
    assert len(small.encode()) <= 20_000


def test_the_order_of_the_evidence_makes_no_difference(tmp_path: Path) -> None:
    run = run_of(MIXED, tmp_path, ended=None)
    first = report_data(read_report(run, ENDED))
    path = run.path / "verdicts.jsonl"
    lines = path.read_text().splitlines()
    random.Random(1).shuffle(lines)
    path.write_text("".join(f"{line}\n" for line in lines))
    again = report_data(read_report(run, ENDED))
    for one in (*first["conversations"], *again["conversations"]):
        one["verdicts"] = sorted(one["verdicts"], key=lambda said: said["rule"])
    assert again == first
