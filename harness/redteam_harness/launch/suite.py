"""A suite: what one launch runs. suite.yaml and rules.yaml as people write them, checked at once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from redteam_harness.launch.documents import Document, read_document
from redteam_personas import (
    CaseParts,
    CastSpec,
    Disposition,
    FactSpec,
    OfflineSpec,
    build_script,
    load_dispositions,
)
from redteam_rubrics import Rule, parse_rules
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.launch.plan import Planned
    from redteam_personas import Script

__all__ = [
    "AgentSpec",
    "CaseSpec",
    "ClaudeSpec",
    "ModelsSpec",
    "SeedSpec",
    "Suite",
    "SuiteSpec",
    "load_suite",
]

_CALLABLE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
_MODULE = r"^[A-Za-z_][\w.]*$"
_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SeedSpec(_Spec):
    """What the dataset is built from."""

    files: Annotated[list[str], Field(min_length=1, description="SQL files, or folders of them, in order.")]
    anchor: Annotated[
        dt.date | None, Field(description="The day on which the data is at home; it is moved by whole weeks.")
    ] = None
    moves: Annotated[list[str], Field(description="Columns (`table.column`) that move with the anchor.")] = []
    owners: Annotated[
        Literal["create", "strip"],
        Field(description="Owner roles that the server lacks: made without login, or left out of the seed."),
    ] = "create"
    allow: Annotated[
        list[str], Field(description="What the seed may do although it could reach outside, by name.")
    ] = []


class ClaudeSpec(_Spec):
    """The same tools in the hands of a model."""

    system: Annotated[str, Field(description="A file with the system prompt.")]
    tools: Annotated[str, Field(pattern=_MODULE, description="The module whose @tool functions it may call.")]


class AgentSpec(_Spec):
    """The agent under test. It runs in a process of its own."""

    python: Annotated[str, Field(pattern=_CALLABLE, description="`module:callable`, answers one line.")]
    claude: Annotated[ClaudeSpec | None, Field(description="Used where `models.agent` and a key are.")] = None
    interpreter: Annotated[str | None, Field(description="A Python that has redteam-sdk; default ours.")] = (
        None
    )
    stdout: Annotated[
        Literal["fault", "record"], Field(description="A conversation whose agent prints: void, or go on.")
    ] = "fault"
    env: Annotated[
        list[str], Field(description="Variables that it gets although they look like secrets.")
    ] = []
    timeout_s: Annotated[float, Field(gt=0, le=3600, description="The longest it may take for one line.")] = (
        60.0
    )


def _agent(value: Any) -> Any:
    if isinstance(value, str):
        kind, _, rest = value.partition(":")
        if kind != "python" or ":" not in rest:
            raise ValueError(f"expected python:module:callable, not {value!r}")
        return {"python": rest}
    return value


class ModelsSpec(_Spec):
    """Model ids, used where a key is present; without them, or offline, scripted stand-ins play."""

    actor: Annotated[str | None, Field(description="Plays the personas.")] = None
    agent: Annotated[str | None, Field(description="Is the agent, with `agent.claude`.")] = None


class CaseSpec(_Spec):
    """One situation: who comes with which demand, and what must hold afterwards."""

    id: Annotated[str, Field(pattern=_NAME, description="Names the case in reports.")]
    who: Annotated[str | None, Field(description="A condition over the cast's columns.")] = None
    setup: Annotated[
        str | None, Field(description="SQL applied after the seed; not part of what changed.")
    ] = None
    demand: Annotated[str, Field(min_length=1, description="What the person wants.")]
    facts: Annotated[
        dict[str, FactSpec], Field(description="What the person knows, and when it says so.")
    ] = {}
    ends: Annotated[str, Field(min_length=1, description="When the person is done.")]
    offline: Annotated[
        OfflineSpec, Field(description="What the scripted stand-in says; a model ignores it.")
    ] = OfflineSpec()
    rubric: Annotated[list[str], Field(min_length=1, description="Names of rules.")]


class SuiteSpec(_Spec):
    """suite.yaml."""

    suite: Annotated[str, Field(pattern=_NAME, description="The suite's name.")]
    seed: SeedSpec
    role: Annotated[str | None, Field(description="Whose rights the tools have; it owns nothing.")] = None
    agent: Annotated[AgentSpec, BeforeValidator(_agent)]
    models: ModelsSpec = ModelsSpec()
    count: Annotated[int, Field(ge=1, le=100_000, description="How many conversations a launch holds.")] = 20
    turns: Annotated[int, Field(ge=1, le=200, description="The most turns of a conversation.")] = 12
    draw: Annotated[int, Field(description="Another number, another draw of personas.")] = 1
    personas: CastSpec
    cases: Annotated[list[CaseSpec], Field(min_length=1, description="The situations.")]
    rules: Annotated[str, Field(description="The file of the rules.")]
    collateral: Annotated[bool, Field(description="Whether a change that no rule allows is a failure.")] = (
        True
    )

    @field_validator("cases")
    @classmethod
    def _distinct(cls, cases: list[CaseSpec]) -> list[CaseSpec]:
        seen: set[str] = set()
        for case in cases:
            if case.id in seen:
                raise ValueError(f"two cases are called {case.id!r}; give each a name of its own")
            seen.add(case.id)
        return cases


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """A checked suite.

    Attributes:
        spec: suite.yaml.
        folder: where it lies; the agent starts there.
        document: suite.yaml with its lines, for messages that come later.
        rules: rules.yaml, by name.
        rules_document: rules.yaml with its lines.
        dispositions: those that the suite uses, by name.
    """

    spec: SuiteSpec
    folder: Path
    document: Document
    rules: Mapping[str, Rule]
    rules_document: Document
    dispositions: Mapping[str, Disposition]

    @property
    def name(self) -> str:
        """The suite's name."""
        return self.spec.suite

    @property
    def turns(self) -> int:
        """The most turns of a conversation."""
        return self.spec.turns

    @property
    def turn_s(self) -> float:
        """The longest that the agent may take for one line, in seconds."""
        return self.spec.agent.timeout_s

    def case(self, case_id: str) -> CaseSpec:
        """A case by its id."""
        return next(case for case in self.spec.cases if case.id == case_id)

    def rules_of(self, case_id: str) -> Mapping[str, Rule]:
        """The rules of a case, by name."""
        return {name: self.rules[name] for name in self.case(case_id).rubric}

    def parts_of(self, case_id: str) -> CaseParts:
        """What a case says of a script."""
        case = self.case(case_id)
        return CaseParts(
            id=case.id, demand=case.demand, facts=case.facts, ends=case.ends, cap=self.spec.turns
        )

    def script_of(self, planned: Planned) -> Script:
        """The script of a planned conversation."""
        disposition = self.dispositions[planned.disposition]
        return build_script(planned.persona, self.parts_of(planned.case), disposition)


def load_suite(where: Path) -> Suite:
    """Read and check a suite: a folder with suite.yaml, or that file.

    Raises:
        UsageError: what is wrong, in which file and line, and what was expected.
    """
    path = where / "suite.yaml" if where.is_dir() else where
    if not path.is_file():
        lacking = f"it has no {path.name}" if where.is_dir() else "there is nothing of that name"
        raise UsageError(
            f"no suite in {where}: {lacking}; name a folder that has one, "
            "or write one with `redteam init DIR`"
        )
    document = read_document(path)
    known = load_dispositions()
    spec = document.validate(SuiteSpec, context={"dispositions": tuple(known)})
    folder = path.parent
    rules_path = _inside(folder, spec.rules, document, ("rules",))
    rules_document = read_document(rules_path)
    try:
        rules = parse_rules(rules_document.data)
    except ValidationError as error:
        raise UsageError(rules_document.explain(error)) from None
    _check_rubrics(spec, rules, document)
    for place, name in _files(spec):
        _inside(folder, name, document, place)
    return Suite(
        spec=spec,
        folder=folder,
        document=document,
        rules=rules,
        rules_document=rules_document,
        dispositions={name: known[name] for name in spec.personas.weights},
    )


def _check_rubrics(spec: SuiteSpec, rules: Mapping[str, Rule], document: Document) -> None:
    for number, case in enumerate(spec.cases):
        for index, name in enumerate(case.rubric):
            if name not in rules:
                place = document.where(("cases", number, "rubric", index))
                raise UsageError(
                    f"{place}: case {case.id!r} names rule {name!r}, which {spec.rules} does not have; "
                    f"it has: {', '.join(rules)}"
                )


def _files(spec: SuiteSpec) -> list[tuple[tuple[int | str, ...], str]]:
    files: list[tuple[tuple[int | str, ...], str]] = [
        (("seed", "files", number), name) for number, name in enumerate(spec.seed.files)
    ]
    files += [(("cases", n, "setup"), case.setup) for n, case in enumerate(spec.cases) if case.setup]
    if spec.agent.claude is not None:
        files.append((("agent", "claude", "system"), spec.agent.claude.system))
    return files


def _inside(folder: Path, name: str, document: Document, place: tuple[int | str, ...]) -> Path:
    path = folder / name
    if not path.exists():
        raise UsageError(f"{document.where(place)}: {path} is not there")
    return path
