"""Mocks of external tools: those that are missing, and those of which nobody said what they do not do.

It is said in the suite's `fidelity.yaml`, reviewed, or at least by `gap=` in the code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from redteam_harness.checks.finding import Finding, refusals
from redteam_harness.registers.mocks import FIDELITY_FILE, load_fidelity, table_of, unknown_tools
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from redteam_harness.agents.code import MarkedExternal
    from redteam_harness.checks.finding import Subject
    from redteam_harness.launch.suite import Suite

__all__ = ["check_mocks"]


async def check_mocks(subject: Subject) -> list[Finding]:
    """Look at every function of the agent's code that `@external` marked, and at the register of mocks."""
    suite = subject.suite
    try:
        fidelity = load_fidelity(suite.folder, suite.rules)
    except UsageError as error:
        return refusals(error)
    if subject.code is None:
        return []
    found = [
        Finding(severity="mistake", place=one.place, about=one.tool, message=one.message)
        for one in unknown_tools(fidelity, subject.code)
    ]
    entries = {entry.tool: entry for entry in table_of(fidelity, subject.code, suite.folder)}
    for external in subject.code.externals:
        place = _place(external, suite)
        entry = entries[external.name]
        if not external.mocked:
            found.append(
                Finding(
                    severity="suggestion",
                    place=place,
                    about=external.name,
                    message=f"external tool {external.name} has no mock: a conversation that calls it has no "
                    "verdict (infra-fault)",
                    advice=f'@external(mock=..., gap="what {external.name} does and the mock does not")',
                )
            )
        elif any(stale for _, stale in entry.rows):
            found.append(
                Finding(
                    severity="suggestion",
                    place=place,
                    about=external.name,
                    message=f"external tool {external.name} or its mock changed since {FIDELITY_FILE} was "
                    "reviewed",
                    advice=f"Review its rows; then pin what you saw: code: '{entry.code}'",
                )
            )
        elif external.gap is None and not entry.rows:
            found.append(
                Finding(
                    severity="suggestion",
                    place=place,
                    about=external.name,
                    message=f"nobody said how the mock of external tool {external.name} differs from the "
                    "real thing, so nobody can say what a verdict that rests on it is worth",
                    advice=f'@external(mock=..., gap="what {external.name} does and the mock does not"), or '
                    f"a row in {FIDELITY_FILE}: `redteam fidelity` drafts it",
                )
            )
    return found


def _place(external: MarkedExternal, suite: Suite) -> str:
    """`file:line`; from the suite's folder on, where the file is in it."""
    if not external.file:
        return ""
    path, folder = Path(external.file), suite.folder.absolute()
    if path.is_relative_to(folder):
        path = suite.folder / path.relative_to(folder)
    return f"{path}:{external.line}"
