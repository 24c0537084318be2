"""`fidelity.yaml`, beside suite.yaml: what external tools really do, and what their mocks do instead.

People write and review it. A mock that has no row is one at which nobody looked, and every report says so. A
row may pin the code that was reviewed; once that code is another, the row is stale.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from redteam_harness.launch.documents import Document, read_document
from redteam_harness.registers.source import Sources
from redteam_rubrics import COLLATERAL
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from redteam_harness.agents.code import AgentCode, MarkedExternal

__all__ = [
    "FIDELITY_FILE",
    "Direction",
    "Fidelity",
    "FidelityRow",
    "MockEntry",
    "Unknown",
    "load_fidelity",
    "mock_facts",
    "shown_place",
    "table_of",
    "unknown_tools",
]

FIDELITY_FILE = "fidelity.yaml"

Direction = Literal["stricter", "more-lenient", "unknown"]
"""What the mock is, compared with the real thing."""

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2000)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Review(_Spec):
    """Who wrote or read the row last, and when."""

    by: Text
    date: dt.date


class Reconciliation(_Spec):
    """Whether the row was compared with the real thing, and what came of it."""

    result: Annotated[
        Literal["confirmed", "refuted", "no-evidence"],
        Field(description="The real thing does differ so; it does not; nobody has looked at it yet."),
    ] = "no-evidence"
    by: Annotated[Text | None, Field(description="Who compared.")] = None
    date: Annotated[dt.date | None, Field(description="When.")] = None
    evidence: Annotated[Text | None, Field(description="By what: a log, a contract, a call.")] = None

    @model_validator(mode="after")
    def _signed(self) -> Reconciliation:
        if self.result != "no-evidence" and (self.by is None or self.date is None):
            raise ValueError(f"`{self.result}` needs `by` and `date`: who compared, and when")
        return self


class FidelityRow(_Spec):
    """One way in which a mock is not what it stands for."""

    tool: Annotated[Text, Field(description="The function's name, as @external has it.")]
    real: Annotated[Text, Field(description="What the real thing does.")]
    mock: Annotated[Text, Field(description="What the mock does.")]
    gap: Annotated[Text, Field(description="The difference, in one sentence.")]
    direction: Annotated[
        Direction,
        Field(description="A more lenient mock may pass a bad agent; a stricter one may fail a good one."),
    ]
    rules: Annotated[
        Literal["all"] | list[Text],
        Field(description="Rules whose verdicts it may change, by name; `all`.", min_length=1),
    ]
    reviewed: Annotated[Review, Field(description="Who looked, and when.")]
    code: Annotated[
        str | None,
        Field(
            pattern="^[0-9a-f]{12}$",
            description="What `redteam fidelity` said of tool and mock at the review; another code is stale.",
        ),
    ] = None
    reconciliation: Reconciliation = Reconciliation()


class _File(_Spec):
    mocks: list[FidelityRow]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """A suite's register.

    Attributes:
        rows: in the file's order.
        document: the file, for the lines of rows.
    """

    rows: Sequence[FidelityRow]
    document: Document

    def where(self, number: int, *keys: str) -> str:
        """`file:line` of a row, counted from 0, or of a key of it."""
        return self.document.where(("mocks", number, *keys))


def load_fidelity(folder: Path, rules: Collection[str]) -> Fidelity | None:
    """Read and check a suite's register; None: it has none.

    Args:
        folder: the suite's.
        rules: names of its rules.

    Raises:
        UsageError: one line per thing that is wrong: file, line, and what was expected.
    """
    path = folder / FIDELITY_FILE
    if not path.exists():
        return None
    document = read_document(path)
    fidelity = Fidelity(rows=document.validate(_File).mocks, document=document)
    known = {COLLATERAL, *rules}
    wrong = [
        f"{fidelity.where(number, 'rules')}: row {number + 1} (tool {row.tool}) names rule {name!r}, which "
        f"the suite does not have; it has: {', '.join(sorted(known))}"
        for number, row in enumerate(fidelity.rows)
        for name in (row.rules if row.rules != "all" else ())
        if name not in known
    ]
    if wrong:
        raise UsageError("\n".join(wrong))
    return fidelity


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """A row of a tool that the code does not have, or that has no mock."""

    place: str
    tool: str
    message: str


def unknown_tools(fidelity: Fidelity | None, code: AgentCode) -> list[Unknown]:
    """Rows that speak of no mock of the agent's code."""
    mocked = {one.name: one.mocked for one in code.externals}
    found = []
    for number, row in enumerate(fidelity.rows if fidelity is not None else ()):
        place = fidelity.where(number, "tool") if fidelity is not None else ""
        if row.tool not in mocked:
            there = ", ".join(mocked) or "none"
            found.append(
                Unknown(
                    place=place,
                    tool=row.tool,
                    message=f"there is no external tool {row.tool!r} in the agent's code; there are: {there}",
                )
            )
        elif not mocked[row.tool]:
            found.append(
                Unknown(
                    place=place,
                    tool=row.tool,
                    message=f"external tool {row.tool!r} has no mock that the row could be about",
                )
            )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class MockEntry:
    """One external tool, and what is known of its mock.

    Attributes:
        tool: its name.
        place: `file:line`; empty where the code is not known.
        mocked: whether it has a mock; None: not known.
        said: what its `gap=` in the code says, which nobody reviewed for this suite.
        code: the digest of tool and mock as they are; None where the source cannot be read.
        rows: those of the register, each with whether it is stale.
    """

    tool: str
    place: str = ""
    mocked: bool | None = None
    said: str | None = None
    code: str | None = None
    rows: Sequence[tuple[FidelityRow, bool]] = ()

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data."""
        return {
            "tool": self.tool,
            "place": self.place,
            "mocked": self.mocked,
            "said_in_code": self.said,
            "code": self.code,
            "rows": [{**row.model_dump(mode="json"), "stale": stale} for row, stale in self.rows],
        }


def table_of(fidelity: Fidelity | None, code: AgentCode | None, folder: Path) -> list[MockEntry]:
    """What is known of each mock, in the order of names.

    Args:
        fidelity: the register.
        code: what is marked in the agent's code; None where that cannot be known: then the rows alone.
        folder: the suite's.
    """
    rows = fidelity.rows if fidelity is not None else ()
    if code is None:
        names = sorted({row.tool for row in rows})
        return [
            MockEntry(tool=name, rows=[(row, False) for row in rows if row.tool == name]) for name in names
        ]
    sources = Sources(folder.absolute())
    return [
        _entry(one, [row for row in rows if row.tool == one.name], sources, folder) for one in code.externals
    ]


def _entry(one: MarkedExternal, rows: Sequence[FidelityRow], sources: Sources, folder: Path) -> MockEntry:
    source = sources.of(one.file, one.name, one.line) if one.file else None
    digest = None if source is None else source.digest
    return MockEntry(
        tool=one.name,
        place=shown_place(one.file, one.line, folder),
        mocked=one.mocked,
        said=one.gap,
        code=digest,
        rows=[(row, row.code is not None and row.code != digest) for row in rows],
    )


def shown_place(file: str, line: int, folder: Path) -> str:
    """`file:line`, from the suite's folder on where the file is in it; empty where there is none."""
    return f"{file.removeprefix(f'{folder.absolute()}/')}:{line}" if file else ""


def mock_facts(fidelity: Fidelity | None, code: AgentCode | None, folder: Path) -> Mapping[str, Any]:
    """What `run.json` keeps of the register as it was at the launch.

    `known` says whether the agent's code could be asked for its external tools.
    """
    entries = table_of(fidelity, code, folder)
    return {
        "known": code is not None,
        "register": fidelity is not None,
        "tools": [entry.to_json() for entry in entries],
    }
