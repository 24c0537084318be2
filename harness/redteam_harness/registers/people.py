"""What was measured by people before, kept beside suite.yaml: how far judges and personas can be trusted.

`calibrations.jsonl` holds a line per rule and judge that `redteam judge calibrate` measured,
`fidelity.jsonl` one per disposition that `redteam personas spot-check` looked at. Both are only ever
appended to, and belong into version control beside the suite. A reader is told which of them still speak of
a given run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from redteam_harness.evidence.appending import append_line, read_lines
from redteam_harness.registers.fidelity import FidelityCheck
from redteam_rubrics.calibration import Calibration
from redteam_sdk.errors import EnvironmentFault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CALIBRATIONS",
    "FIDELITY",
    "DispositionFidelity",
    "append_calibration",
    "append_fidelity",
    "fidelity_checks",
    "fidelity_lines",
    "fidelity_of_run",
    "read_calibrations",
    "read_fidelity",
    "register_folder",
    "suite_folder_of",
]

_Line = TypeVar("_Line", Calibration, FidelityCheck)

CALIBRATIONS = "calibrations.jsonl"
FIDELITY = "fidelity.jsonl"


def suite_folder_of(facts: Mapping[str, Any]) -> Path | None:
    """The folder of the suite that a run was launched from.

    Args:
        facts: the run's `run.json`.

    Returns:
        None where it is not there any more, or the run is too old to say.
    """
    at = facts.get("suite_at")
    if not at or not Path(at).is_file():
        return None
    return Path(at).parent


def register_folder(facts: Mapping[str, Any], suite: Path | None) -> Path:
    """The folder into which what is measured of a run is put.

    Args:
        facts: the run's `run.json`.
        suite: where the suite is now, its folder or its file; None: where the run was launched from.

    Raises:
        UsageError: it is not there.
    """
    if suite is not None:
        folder = suite if suite.is_dir() else suite.parent
        if not suite.exists():
            raise UsageError(f"--suite {suite} is not there")
        return folder
    if (found := suite_folder_of(facts)) is not None:
        return found
    at = facts.get("suite_at")
    gone = (
        f"suite {facts.get('suite')} is no longer at {at}"
        if at
        else "the run does not say where its suite is"
    )
    raise UsageError(f"{gone}; name its folder with --suite DIR: what is measured is kept there")


def read_calibrations(suite_folder: Path) -> list[Calibration]:
    """All calibrations of the judges of a suite, in the order in which they were measured.

    `redteam_rubrics.calibration.calibration_of(rule, asked, these)` says which one speaks of a judge, and
    whether it is stale. A suite without a register has none.

    Raises:
        EnvironmentFault: the register cannot be read, or a line of it is none of ours.
    """
    path = suite_folder / CALIBRATIONS
    return [_read(path, number, Calibration, line) for number, line in enumerate(read_lines(path), start=1)]


def append_calibration(suite_folder: Path, calibration: Calibration) -> None:
    """Put a calibration on file; it is on disk on return.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    append_line(suite_folder / CALIBRATIONS, calibration.to_json())


@dataclass(frozen=True, slots=True, kw_only=True)
class DispositionFidelity:
    """What is known of how people judged one disposition.

    Attributes:
        disposition: its name.
        check: the newest check that speaks of it as it is played; else the newest of an earlier script,
            actor model or actor prompt; None: nobody looked at it.
        stale: whether it is of an earlier one.
    """

    disposition: str
    check: FidelityCheck | None
    stale: bool

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data, for reports."""
        return {
            "disposition": self.disposition,
            "stale": self.stale,
            "check": None if self.check is None else self.check.to_json(),
        }


def fidelity_checks(suite_folder: Path) -> list[FidelityCheck]:
    """All spot checks of the personas of a suite, in the order in which they were made.

    Raises:
        EnvironmentFault: the register cannot be read, or a line of it is none of ours.
    """
    path = suite_folder / FIDELITY
    return [_read(path, number, FidelityCheck, line) for number, line in enumerate(read_lines(path), start=1)]


def read_fidelity(suite_folder: Path, facts: Mapping[str, Any]) -> list[DispositionFidelity]:
    """What is known of each disposition that a run may have used, in the order of the alphabet.

    Args:
        suite_folder: where the register is.
        facts: the run's `run.json`: it says which scripts, which actor and which actor prompt were used.

    Raises:
        EnvironmentFault: the register cannot be read, or a line of it is none of ours.
    """
    checks = fidelity_checks(suite_folder)
    parts = facts["comparability"]
    found = []
    for name, digest in sorted(parts["dispositions"].items()):
        of_it = [check for check in checks if check.disposition == name]
        played = (digest, parts["actor"], parts.get("actor_prompt"))
        fresh = [check for check in of_it if (check.script, check.actor, check.actor_prompt) == played]
        newest = fresh[-1] if fresh else of_it[-1] if of_it else None
        found.append(DispositionFidelity(disposition=name, check=newest, stale=bool(of_it) and not fresh))
    return found


def fidelity_of_run(facts: Mapping[str, Any]) -> list[DispositionFidelity]:
    """`read_fidelity` for a run, from wherever its suite is; nothing where that is not there any more.

    Args:
        facts: the run's `run.json`.

    Raises:
        EnvironmentFault: the register cannot be read, or a line of it is none of ours.
    """
    folder = suite_folder_of(facts)
    return [] if folder is None else read_fidelity(folder, facts)


def append_fidelity(suite_folder: Path, check: FidelityCheck) -> None:
    """Put a spot check on file; it is on disk on return.

    Raises:
        EnvironmentFault: it cannot be written.
    """
    append_line(suite_folder / FIDELITY, check.to_json())


def fidelity_lines(known: Sequence[DispositionFidelity]) -> list[str]:
    """What a report says of persona fidelity: one line, and one per figure that needs a reader's eye.

    Args:
        known: of `read_fidelity`; of nothing, nothing is said.
    """
    checked = [one for one in known if one.check is not None]
    if not known:
        return []
    if not checked:
        return ["persona fidelity: never checked; `redteam personas spot-check RUN` does it"]
    newest = max(one.check.at for one in checked if one.check is not None)
    stale = [one.disposition for one in checked if one.stale]
    never = [one.disposition for one in known if one.check is None]
    line = f"persona fidelity: checked {newest[:10]} for {len(checked)} of {len(known)} dispositions"
    if stale:
        line += f", {len(stale)} stale ({', '.join(stale)}: script or actor changed since)"
    if never:
        line += f"; not checked: {', '.join(never)}"
    warnings = (text for one in checked if one.check and not one.stale for text in one.check.warnings)
    return [line, *dict.fromkeys(warnings)]


def _read(path: Path, number: int, kind: type[_Line], line: Mapping[str, Any]) -> _Line:
    try:
        return kind.from_json(line)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise EnvironmentFault(
            f"{path}:{number}: `redteam` wrote no such line ({what}); restore it"
        ) from None
