"""What `redteam bench tau2` says of a run: to a person, and as JSON."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from redteam_forker.changes.render import ALL, print_changes, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_forker import ChangeSet
    from redteam_harness.benchmarks.tau2 import AlternativeRun, Benched, Refused, TaskRun
    from redteam_harness.benchmarks.tau2.difference import Beside, Difference, Leaf, Side

__all__ = ["facts_of", "show"]

_LEAVES = 12
_LETTERS = 70


def show(benched: Benched, parallel: int) -> None:
    """Print each task that does not match, each alternative, and the figures."""
    for run in benched.runs:
        if not run.is_match:
            _show_mismatch(run)
    actions = sum(len(run.task.actions) for run in benched.runs)
    refused = sum(len(run.gold.refused) for run in benched.runs)
    typer.echo(
        f"{benched.matches} of {len(benched.runs)} tasks match: "
        f"{actions} actions, {refused} of them refused; {_of_unchanged(benched)}"
    )
    _show_alternatives(benched)
    typer.echo(
        f"{benched.seconds:.1f} s at --parallel {parallel}: {benched.forks_per_second:.1f} forks a second, "
        "each made, used, compared, exported and dropped"
    )


def facts_of(benched: Benched, parallel: int) -> Mapping[str, Any]:
    """The outcome as JSON has it."""
    return {
        "benchmark": "tau2-retail",
        "server": benched.server,
        "template": benched.template,
        "parallel": parallel,
        "tasks": len(benched.runs),
        "matches": benched.matches,
        "seconds": round(benched.seconds, 3),
        "forks_per_second": round(benched.forks_per_second, 2),
        "runs": [
            {
                "task": run.task.id,
                "match": run.is_match,
                "end_state_sha256": run.gold.sha256,
                "expected_sha256": run.task.expected.end_state_sha256,
                "unchanged": run.task.expected.unchanged,
                "refused": _refused_facts(run.gold.refused),
                "expected_refused": list(run.task.expected.failing_action_indexes),
                "seconds": round(run.gold.seconds, 3),
                "fault": run.gold.fault,
                "changes": None if run.is_match else _changes_facts(run.gold.changes),
                "beside_expected": None if run.beside is None else _beside_facts(run.beside),
                "alternatives": [_alternative_facts(one) for one in run.alternatives],
            }
            for run in benched.runs
        ],
    }


def _of_unchanged(benched: Benched) -> str:
    unchanged = [run for run in benched.runs if run.task.expected.unchanged]
    return f"{len(unchanged)} tasks rightly end as they began"


def _show_mismatch(run: TaskRun) -> None:
    """What a task left beside what was expected of it."""
    task, gold, expected = run.task, run.gold, run.task.expected
    if gold.fault is not None:
        typer.echo(f"task {task.id}  fault of ours: {gold.fault}")
        return
    typer.echo(f"task {task.id}  does not match")
    same = " (as expected)" if gold.sha256 == expected.end_state_sha256 else ""
    typer.echo(f"  end state  {gold.sha256}{same}")
    if not same:
        like = ", the initial one" if expected.unchanged else ""
        typer.echo(f"  expected   {expected.end_state_sha256}{like}")
    refused = {one.index: f"{one.type}: {one.message}" for one in gold.refused}
    for index, action in enumerate(task.actions):
        due = index in expected.failing_action_indexes
        if index in refused or due:
            told = refused.get(index, "done")
            typer.echo(f"  action {index}  {action.name}  {told}; expected: {'refused' if due else 'done'}")
        else:
            typer.echo(f"  action {index}  {action.name}  done")
    if run.beside is not None:
        _show_beside(run.beside)
    if gold.changes is not None:
        typer.echo("  what changed:")
        typer.echo(_changes_text(gold.changes))


def _show_beside(beside: Beside) -> None:
    if beside.difference is None:
        typer.echo(
            "  what was expected is not known: on the nested document the same actions end in "
            f"{beside.reference_sha256}, which is not expected either"
        )
        return
    difference = beside.difference
    typer.echo(
        f"  beside the expected end state: values not as expected {difference.wrong}, "
        f"changed as expected {difference.right}"
    )
    for leaf in difference.leaves[:_LEAVES]:
        typer.echo(f"    {_leaf_text(leaf)}")
    more = _more(difference, difference.leaves[:_LEAVES])
    if more:
        typer.echo(f"    and {more} more")


def _leaf_text(leaf: Leaf) -> str:
    path = "/".join(map(str, leaf.path))
    before, expected, found = (_value_text(leaf, side) for side in ("before", "expected", "found"))
    if leaf.is_as_expected:
        return f"{path}  {before} became {expected}, as expected"
    return f"{path}  was {before}; expected {expected}, found {found}"


def _value_text(leaf: Leaf, side: Side) -> str:
    text = leaf.text(side)
    if text is None:
        return "nothing"
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 3]}..."


def _more(difference: Difference, listed: Sequence[Leaf]) -> int:
    return difference.wrong + difference.right - len(listed)


def _show_alternatives(benched: Benched) -> None:
    runs = [(run, one) for run in benched.runs for one in run.alternatives]
    if not runs:
        return
    accepted = sum(one.standing == "accepted" for _, one in runs)
    typer.echo(f"alternatives {len(runs)}, accepted beside the gold end state {accepted}")
    for run, one in runs:
        why = " ".join(one.alternative.why.split())
        typer.echo(f"  task {run.task.id}, {one.name}  {_standing_text(one)}  ({why})")


def _standing_text(run: AlternativeRun) -> str:
    attempt = run.attempt
    match run.standing:
        case "accepted":
            rows = sum(len(table.rows) for table in attempt.changes.tables) if attempt.changes else 0
            return f"accepted: another end state, {rows} changed rows"
        case "refused":
            first = attempt.refused[0]
            return (
                f"not accepted: action {first.index} {first.tool} was refused, {first.type}: {first.message}"
            )
        case "as gold":
            return "not needed: it ends as the gold actions do"
        case "changes nothing":
            return "not accepted: it leaves everything as it was, and so does who does nothing"
        case "repeated":
            return "not needed: an earlier alternative ends like it"
        case "fault":
            return f"fault of ours: {attempt.fault}"


def _changes_text(changes: ChangeSet) -> str:
    file = io.StringIO()
    print_changes(Console(file=file, width=110, highlight=False), shown(changes, bounds=ALL))
    return file.getvalue().rstrip()


def _refused_facts(refused: Iterable[Refused]) -> list[Mapping[str, Any]]:
    return [
        {"index": one.index, "tool": one.tool, "type": one.type, "message": one.message} for one in refused
    ]


def _changes_facts(changes: ChangeSet | None) -> Mapping[str, Any] | None:
    return None if changes is None else changes.to_json()


def _beside_facts(beside: Beside) -> Mapping[str, Any]:
    """A value that is not in one of the documents has no key there; `more` says how many are left out."""
    difference = beside.difference
    if difference is None:
        return {"reference_sha256": beside.reference_sha256, "is_known": False}
    return {
        "reference_sha256": beside.reference_sha256,
        "is_known": True,
        "not_as_expected": difference.wrong,
        "as_expected": difference.right,
        "values": [
            {"path": list(leaf.path), **leaf.sides, "as_expected": leaf.is_as_expected}
            for leaf in difference.leaves
        ],
        "more": _more(difference, difference.leaves),
    }


def _alternative_facts(run: AlternativeRun) -> Mapping[str, Any]:
    return {
        "number": run.number,
        "why": run.alternative.why,
        "outcome": run.standing,
        "end_state_sha256": run.attempt.sha256,
        "refused": _refused_facts(run.attempt.refused),
        "seconds": round(run.attempt.seconds, 3),
        "fault": run.attempt.fault,
        "changes": _changes_facts(run.attempt.changes),
    }
