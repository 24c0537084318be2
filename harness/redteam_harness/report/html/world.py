"""How far the run's world can be trusted: what was attested of its walls, its mocks, its personas. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_harness.report.html.text import html_text
from redteam_harness.report.isolation import attestation_lines
from redteam_harness.report.mocks import mock_lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["lenient", "world"]


def world(data: Mapping[str, Any]) -> Iterator[str]:
    """Isolation, mocks and persona fidelity, each with what lacks.

    Args:
        data: report.json.
    """
    parts = (
        ("Isolation", attestation_lines(data["attestation"])),
        ("Mocks", mock_lines(data["mocks"])),
        ("Personas", data["persona_fidelity"]["said"]),
    )
    if not any(lines for _, lines in parts):
        return
    yield '<section aria-labelledby="world-title"><h2 id="world-title">How far this world can be trusted</h2>'
    for name, lines in parts:
        if lines:
            yield f"<h3>{name}</h3>"
            yield from _items(lines)
    yield "</section>"


def _items(lines: Sequence[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{html_text(line)}</li>" for line in lines)
    yield "</ul>"


def lenient(rule: Mapping[str, Any]) -> str:
    """The lenient gaps of mocks that touch a rule's verdicts, for its row; empty where there are none."""
    said = [
        f"{gap['passes']:,} of its passes may rest on a lenient mock, {gap['tool']}: {gap['gap']}"
        for gap in rule["lenient_mocks"]
        if gap["passes"]
    ]
    return "".join(f'<br><span class="soft">{html_text(line)}</span>' for line in said)
