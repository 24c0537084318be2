"""Whole launches of the clinic, offline: every disposition is played to its end, without a fault of ours."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import ROOT, dsn_of, redteam, report_of

from redteam_personas import load_dispositions

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker import Server

DISPOSITIONS = load_dispositions()
MIX = "dispositions: {cooperative: 2, confused: 1, evasive: 1}"
CASES = 7


def clinic(folder: Path, mix: str, **more: str) -> Path:
    """A copy of the clinic with another mix, which nothing but the mix tells from the one that ships."""
    shutil.copytree(ROOT / "seeds" / "clinic", folder, ignore=shutil.ignore_patterns("__pycache__"))
    text = (folder / "suite.yaml").read_text()
    assert text.count(MIX) == 1
    text = text.replace(
        MIX, "\n  ".join([f"dispositions: {{{mix}}}", *(f"{key}: {one}" for key, one in more.items())])
    )
    (folder / "suite.yaml").write_text(text)
    return folder


def events_of(run: Path, conversation: str) -> list[dict[str, Any]]:
    lines = (run / "conversations" / conversation / "trace.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("disposition", DISPOSITIONS)
async def test_a_launch_with_each_disposition_ends_without_a_fault(
    server: Server, tmp_path: Path, disposition: str
) -> None:
    only = {"cooperative": 0, disposition: 1}
    suite = clinic(tmp_path / "suite", ", ".join(f"{name}: {weight}" for name, weight in only.items()))
    out = tmp_path / "runs"
    done = await anyio.to_thread.run_sync(
        lambda: redteam(
            "launch", suite, "--count", CASES, "--offline", "--json", "--server", dsn_of(server), "--out", out
        )
    )
    report = report_of(done)
    held = report["conversations"]
    assert Counter(one["disposition"] for one in held) == {disposition: CASES}
    assert [(one["id"], one["outcome"], one["message"]) for one in held if "fault" in one["outcome"]] == []
    (run,) = out.iterdir()
    facts = json.loads((run / "run.json").read_text())
    assert list(facts["comparability"]["dispositions"].values()) == [DISPOSITIONS[disposition].digest]
    for one in held:
        events = events_of(run, one["id"])
        assert [event for event in events if event["kind"] in ("leak", "refused", "fault")] == []
        # Each of them gives up or is served within the cap; the clinic's is 14.
        assert events[-1]["kind"] in ("end", "late") or one["turns"] == 14
        _claims_another_row_or_none(run, one["id"], disposition)


def _claims_another_row_or_none(run: Path, conversation: str, disposition: str) -> None:
    about = json.loads((run / "conversations" / conversation / "conversation.json").read_text())
    planned = {one["id"]: one for one in json.loads((run / "run.json").read_text())["plan"]}[conversation]
    assert about["claims"] == planned["claims"]
    assert (about["claims"] is not None) == DISPOSITIONS[disposition].impersonates
    assert about["claims"] != about["persona"]
    if about["claims"] is None or about["case"] == "claimed-identity":
        return
    said = " ".join(event["text"] for event in events_of(run, conversation) if event["kind"] == "user")
    assert about["row"]["full_name"] not in said
    assert about["row"]["date_of_birth"] not in said


async def test_a_suites_own_disposition_is_played_and_its_digest_decides_comparability(
    server: Server, tmp_path: Path
) -> None:
    suite = clinic(tmp_path / "suite", "cooperative: 0, sleepy: 1")
    (suite / "dispositions").mkdir()
    shipped = DISPOSITIONS["cooperative"].model_dump(mode="json")
    own = {**shipped, "name": "sleepy", "offline": {**shipped["offline"], "interject": ["I am half asleep."]}}
    digests = set()
    for farewell in ("Good night, goodbye.", "Sleep well, goodbye."):
        own["offline"]["farewell"] = [farewell]
        (suite / "dispositions" / "sleepy.yaml").write_text(json.dumps(own))
        out = tmp_path / farewell
        await anyio.to_thread.run_sync(
            lambda out=out: redteam(  # type: ignore[misc]
                "launch", suite, "--count", 2, "--offline", "--server", dsn_of(server), "--out", out
            )
        )
        (run,) = out.iterdir()
        digests.add(json.loads((run / "run.json").read_text())["comparability"]["key"])
        said = [event["text"] for event in events_of(run, "c001") if event["kind"] == "user"]
        assert said[-1] == farewell
        assert any(line.startswith("I am half asleep.") for line in said)
    assert len(digests) == 2
