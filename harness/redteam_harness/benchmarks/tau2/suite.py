"""The benchmark's tasks as a suite: a folder for `redteam check`, `personas` and `launch`, like any other.

Its rubric is what the gold actions and the accepted alternatives did to their forks, so it is written after a
run, and only of tasks that match. The folder holds the benchmark's data: it belongs outside of this project.
"""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any, Literal, get_args

import yaml

from redteam_harness.benchmarks.tau2.rules import NOTHING_CHANGED, nothing_changed_rule, rules_of
from redteam_harness.benchmarks.tau2.ways import Way
from redteam_harness.benchmarks.tau2.world import ROLE, SEED_FILES, TOOLS
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.benchmarks.tau2.data import Benchmark, Task
    from redteam_harness.benchmarks.tau2.outcome import Benched, TaskRun
    from redteam_harness.benchmarks.tau2.world import World

__all__ = ["REFERENCE_AGENTS", "ReferenceAgent", "check_new", "write_suite"]

ReferenceAgent = Literal["gold", "nothing", "clumsy"]
"""Agents of the world's `reference.py`: what is right, nothing, and what is right with one thing more."""
REFERENCE_AGENTS: tuple[ReferenceAgent, ...] = get_args(ReferenceAgent)

_HEAD = """\
# {count} tasks of tau2-bench's retail domain, written by `redteam bench tau2` from {source}.
# It holds the benchmark's data. Cases with `nothing_to_do` are tasks whose gold end state is the initial one:
# an agent that does nothing leaves the right state, so give them a rule on what must be said.
"""
_COLUMN = re.compile(r"\{([^\W\d]\w*)\}")
_ENDS = "when everything that you came for is settled, or when you were told that it will not be done"
_TURNS = 30
# Used where a key is; without one, the reference agent and scripted callers play.
_MODELS = {"actor": "claude-haiku-4-5", "agent": "claude-sonnet-5"}


def write_suite(
    benchmark: Benchmark, world: World, benched: Benched, out: Path, *, agent: ReferenceAgent = "gold"
) -> int:
    """Write the suite of the tasks that match into a new folder; returns how many they are.

    Raises:
        UsageError: no task matches, or whose task it is cannot be told.
    """
    runs = [run for run in benched.runs if run.is_match]
    if not runs:
        raise UsageError("no task matches, so there is no gold end state to write rules from")
    people = {run.task.id: _person_of(run.task, benchmark) for run in runs}
    out.mkdir(parents=True)
    world.write_seed(benchmark.db, out)
    for path in world.folder.glob("*.py"):
        if path.name != "load.py":
            shutil.copyfile(path, out / path.name)
    if benchmark.policy is not None:
        shutil.copyfile(benchmark.policy, out / "policy.md")
    rules: dict[str, Any] = {}
    cases = []
    for run in runs:
        own, case = _case(run)
        rules |= own
        cases.append(case)
    gold = {
        run.task.id: {
            "user_id": people[run.task.id],
            "actions": [action.model_dump() for action in run.task.actions],
            "communicate": list(run.task.communicate),
        }
        for run in runs
    }
    (out / "gold.json").write_text(json.dumps(gold, indent=1), encoding="utf-8")
    _write(out / "rules.yaml", "", rules)
    claude = (
        {} if benchmark.policy is None else {"claude": {"system": "policy.md", "tools": TOOLS, "steps": 40}}
    )
    suite = {
        "suite": "tau2-retail",
        **({"models": _MODELS} if claude else {}),
        "seed": {"files": list(SEED_FILES)},
        "role": ROLE,
        "agent": {"python": f"reference:{agent}", **claude},
        "count": len(cases),
        "turns": _TURNS,
        "personas": {
            "select": _cast([run.task for run in runs], people),
            "key": "task",
            "dispositions": {"cooperative": 1},
        },
        "cases": cases,
        "rules": "rules.yaml",
    }
    _write(out / "suite.yaml", _HEAD.format(count=len(cases), source=benchmark.db.parent.name), suite)
    return len(cases)


def check_new(out: Path) -> None:
    """Check that a suite can be written there: before the run that it is written after.

    Raises:
        UsageError: there is something already.
    """
    if out.exists():
        raise UsageError(f"{out} is there already; name a folder to make")


def _case(run: TaskRun) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The rules of a task, and its case."""
    task, changes = run.task, run.gold.changes
    assert changes is not None
    name = f"task-{task.id}"
    ways = [
        Way(one.name, one.alternative.why, one.attempt.changes)
        for one in run.alternatives
        if one.standing == "accepted" and one.attempt.changes is not None
    ]
    rules = rules_of(name, changes, task.communicate, ways)
    if task.expected.unchanged and not ways:
        rules = {NOTHING_CHANGED: nothing_changed_rule(), **rules}
    told = task.instructions
    demand = "\n\n".join(part for part in (told.reason_for_call, told.task_instructions) if part.strip(" ."))
    case: dict[str, Any] = {
        "id": name,
        "who": f"task = {_literal(task.id)}",
        "demand": _COLUMN.sub(r"{ \1 }", demand),
        "facts": {"known_info": "at once", "email": "when asked"},
        "ends": _ENDS,
        "offline": {"says": [f"Hello, I am calling about task {task.id} of the benchmark."]},
        "rubric": list(rules),
    }
    if task.expected.unchanged:
        case["nothing_to_do"] = True
    return rules, case


def _cast(tasks: Sequence[Task], people: Mapping[str, str]) -> str:
    """One row for each task: the user, and what they know. An email that they do not know is NULL."""
    rows = ",\n".join(
        "  ("
        + ", ".join(
            (
                _literal(task.id),
                _literal(people[task.id]),
                _literal((task.instructions.known_info or "").strip()),
                str(not _forgets_email(task)).lower(),
            )
        )
        + ")"
        for task in tasks
    )
    return (
        "SELECT t.task, t.known_info, u.id AS user_id, u.first_name, u.last_name, u.zip,\n"
        "       CASE WHEN t.knows_email THEN u.email END AS email\n"
        f"FROM (VALUES\n{rows}\n) AS t (task, user_id, known_info, knows_email)\n"
        "JOIN users u ON u.id = t.user_id\n"
    )


def _forgets_email(task: Task) -> bool:
    return "email" in (task.instructions.unknown_info or "").lower()


def _person_of(task: Task, benchmark: Benchmark) -> str:
    """The id of the one user that a task's known_info speaks of: by id, by email, or by name and zip code.

    Raises:
        UsageError: it is nobody, or could be several.
    """
    known = (task.instructions.known_info or "").lower()
    found = [user["user_id"] for user in benchmark.users.values() if _is_meant(user, known)]
    if len(found) != 1:
        raise UsageError(
            f"task {task.id}: known_info speaks of {len(found) or 'no'} users of {benchmark.db.name}; "
            "it must have a user id, an email, or a name and a zip code"
        )
    return str(found[0])


def _is_meant(user: Mapping[str, Any], known: str) -> bool:
    names = (user["name"]["first_name"], user["name"]["last_name"], user["address"]["zip"])
    return (
        user["user_id"].lower() in known
        or user["email"].lower() in known
        or all(re.search(rf"\b{re.escape(name.lower())}\b", known) for name in names)
    )


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, as a person would write them."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def _write(path: Path, head: str, data: Mapping[str, Any]) -> None:
    body = yaml.dump(dict(data), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)
    path.write_text(head + body, encoding="utf-8")
