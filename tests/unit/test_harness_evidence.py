from __future__ import annotations

import json
from pathlib import Path

import pytest

from redteam_harness.evidence.journal import Journal, read_journal
from redteam_harness.evidence.run import new_run, open_run, read_conversation
from redteam_harness.evidence.storage import EvidenceFault, write_json, write_text
from redteam_harness.evidence.trace import Trace
from redteam_sdk.errors import EnvironmentFault, UsageError

FULL_DEVICE = Path("/dev/full")


def _journal(path: Path, entries: int = 3) -> Path:
    with Journal(path) as journal:
        for number in range(entries):
            journal.append("conversation_finished", conversation=f"c{number:03}", outcome="pass")
    return path


def test_a_journal_reads_back_what_was_appended(tmp_path: Path) -> None:
    entries = read_journal(_journal(tmp_path / "journal.jsonl"))
    assert [entry["conversation"] for entry in entries] == ["c000", "c001", "c002"]


@pytest.mark.parametrize(
    "tamper",
    [
        pytest.param(lambda lines: [lines[0], lines[1].replace("pass", "fail"), lines[2]], id="changed"),
        pytest.param(lambda lines: [lines[0], lines[2]], id="taken-out"),
        pytest.param(lambda lines: [lines[0], lines[0], lines[1], lines[2]], id="put-in"),
        pytest.param(lambda lines: [lines[1], lines[0], lines[2]], id="swapped"),
        pytest.param(lambda lines: [lines[0], lines[1][:40], lines[2]], id="cut-in-the-middle"),
    ],
)
def test_a_tampered_journal_is_found(tmp_path: Path, tamper: object) -> None:
    path = _journal(tmp_path / "journal.jsonl")
    lines = path.read_text().splitlines()
    assert callable(tamper)
    path.write_text("".join(f"{line}\n" for line in tamper(lines)))
    with pytest.raises(EnvironmentFault, match=r"journal\.jsonl:\d: the journal's chain is broken"):
        read_journal(path)


def test_a_last_line_cut_by_a_crash_costs_only_itself(tmp_path: Path) -> None:
    path = _journal(tmp_path / "journal.jsonl")
    path.write_text(path.read_text() + '{"kind": "conversation_fin')
    assert len(read_journal(path)) == 3


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    path = _journal(tmp_path / "journal.jsonl")
    with pytest.raises(EvidenceFault, match="File exists"):
        Journal(path)
    assert len(read_journal(path)) == 3


def test_a_full_disk_is_told_with_the_path_and_the_way_out() -> None:
    with (
        pytest.raises(EvidenceFault, match=r"/dev/full: No space left on device; free some space.*--out DIR"),
        Trace(FULL_DEVICE) as trace,
    ):
        trace.record("user", 1, text="hello")


def test_a_file_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    target.mkdir()
    with pytest.raises(EvidenceFault, match=r"report\.json"):
        write_text(target, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_a_run_is_found_by_path_by_name_and_as_the_latest(tmp_path: Path) -> None:
    run = new_run(tmp_path / "runs")
    write_json(run.facts, {"run": run.id})
    found = [open_run(reference, tmp_path / "runs") for reference in (str(run.path), run.id, "latest")]
    assert [one.path.resolve() for one in found] == [run.path.resolve()] * 3


def test_an_unknown_run_lists_those_there_are(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    write_json(run.facts, {})
    with pytest.raises(UsageError, match=f"no run 'nope'.*runs there: {run.id}"):
        open_run("nope", tmp_path)


def test_a_conversation_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    run = new_run(tmp_path)
    folder = run.conversation("c001")
    folder.mkdir()
    write_json(folder / "conversation.json", {"id": "c001"})
    with Trace(folder / "trace.jsonl") as trace:
        trace.record("user", 1, text="Zoë says “hi”")
    run.append_verdicts([{"conversation": "c001", "rule": "a"}, {"conversation": "c002", "rule": "a"}])
    stored = read_conversation(run, "c001")
    assert stored.about == {"id": "c001"}
    assert [event["text"] for event in stored.events] == ["Zoë says “hi”"]
    assert [verdict["conversation"] for verdict in stored.verdicts] == ["c001"]
    with pytest.raises(UsageError, match="no conversation 'c009'; it has c001 to c001"):
        read_conversation(run, "c009")


def test_evidence_is_one_json_object_a_line(tmp_path: Path) -> None:
    with Trace(tmp_path / "trace.jsonl") as trace:
        trace.record("agent", 2, text="line one\nline two")
    (line,) = (tmp_path / "trace.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["text"] == "line one\nline two"


def test_half_a_character_is_kept_and_stops_nothing(tmp_path: Path) -> None:
    with Trace(tmp_path / "trace.jsonl") as trace, Journal(tmp_path / "journal.jsonl") as journal:
        trace.record("agent", 1, text="half \udcff of it, and Zoë")
        journal.append("conversation_finished", message="half \udcff of it")
    assert json.loads((tmp_path / "trace.jsonl").read_text())["text"] == "half \udcff of it, and Zoë"
    assert read_journal(tmp_path / "journal.jsonl")[0]["message"] == "half \udcff of it"
