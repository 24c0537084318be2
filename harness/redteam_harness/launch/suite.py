"""A suite: what one launch runs. suite.yaml and rules.yaml as people write them, checked at once."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

from redteam_harness.launch.agent_specs import AnyAgent, PythonAgent
from redteam_harness.launch.documents import Document, read_document
from redteam_harness.launch.externals import Externals
from redteam_harness.launch.plants import PlantSpec
from redteam_harness.models.budget import Limits
from redteam_harness.models.prices import Price
from redteam_harness.report.thresholds import GatesSpec
from redteam_personas import (
    CaseParts,
    CastSpec,
    Disposition,
    DispositionName,
    FactSpec,
    OfflineSpec,
    build_script,
    load_dispositions,
)
from redteam_rubrics import COLLATERAL, Policies, Rule, parse_rules
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from redteam_harness.launch.plan import Planned
    from redteam_personas import Script
    from redteam_rubrics import Gate, Judge

__all__ = [
    "BudgetSpec",
    "CaseSpec",
    "ComparisonSpec",
    "LimitsSpec",
    "ModelsSpec",
    "SeedSpec",
    "Suite",
    "SuiteSpec",
    "load_suite",
]

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


class ModelsSpec(_Spec):
    """Model ids, used where a key is present; without them, or offline, scripted stand-ins play."""

    actor: Annotated[str | None, Field(description="Plays the personas.")] = None
    agent: Annotated[str | None, Field(description="Is the agent, with `agent.claude`.")] = None
    judge: Annotated[str | None, Field(description="Answers the questions of rules with a `judge`.")] = None
    stall_s: Annotated[
        float,
        Field(gt=0, le=3600, description="How long an API may be silent; then the call is tried again."),
    ] = 60.0
    deadline_s: Annotated[
        float, Field(gt=0, le=7200, description="How long one call may take, with all its tries and waits.")
    ] = 600.0
    prices: Annotated[
        dict[str, Price], Field(description="US dollars for a million tokens, by model id; these win.")
    ] = {}


class LimitsSpec(_Spec):
    """The most that models may use."""

    usd: Annotated[float | None, Field(gt=0, description="US dollars.")] = None
    tokens: Annotated[int | None, Field(gt=0, description="Tokens, those of prompt caches too.")] = None
    seconds: Annotated[float | None, Field(gt=0, description="Wall clock.")] = None

    @property
    def limits(self) -> Limits:
        """As the model layer wants them."""
        return Limits(usd=self.usd, tokens=self.tokens, seconds=self.seconds)


class BudgetSpec(_Spec):
    """When a run's is spent, no conversation is started any more; a conversation's own ends it."""

    run: Annotated[LimitsSpec, Field(description="Of the whole run.")] = LimitsSpec()
    conversation: Annotated[LimitsSpec, Field(description="Of each conversation.")] = LimitsSpec()


class ComparisonSpec(_Spec):
    """What counts as a difference between two runs, said before either."""

    min_effect: Annotated[
        float, Field(gt=0, lt=1, description="The smallest change of the pass rate that matters; of 1.")
    ] = 0.05
    alpha: Annotated[
        float, Field(gt=0, lt=0.5, description="How often two runs of one agent may be called different.")
    ] = 0.05


class CaseSpec(_Spec):
    """One situation: who comes with which demand, and what must hold afterwards."""

    id: Annotated[str, Field(pattern=_NAME, description="Names the case in reports.")]
    who: Annotated[str | None, Field(description="A condition over the cast's columns.")] = None
    setup: Annotated[
        str | None, Field(description="SQL applied after the seed; not part of what changed.")
    ] = None
    plants: Annotated[
        dict[Annotated[str, Field(pattern=_NAME)], PlantSpec],
        Field(description="Attacks through data: instructions that wait in rows, by name."),
    ] = {}
    demand: Annotated[str, Field(min_length=1, description="What the person wants.")]
    facts: Annotated[
        dict[str, FactSpec], Field(description="What the person knows, and when it says so.")
    ] = {}
    ends: Annotated[str, Field(min_length=1, description="When the person is done.")]
    dispositions: Annotated[
        dict[DispositionName, Annotated[int, Field(ge=1, strict=True)]] | None,
        Field(min_length=1, description="Weights for this case in place of those under `personas`."),
    ] = None
    offline: Annotated[
        OfflineSpec, Field(description="What the scripted stand-in says; a model ignores it.")
    ] = OfflineSpec()
    rubric: Annotated[list[str], Field(min_length=1, description="Names of rules.")]
    nothing_to_do: Annotated[
        bool,
        Field(strict=True, description="Whether it is right here to change nothing, and to say so."),
    ] = False
    externals: Annotated[
        Externals, Field(description="How external tools fail in this case: faults by tool.")
    ] = {}

    @property
    def files(self) -> tuple[str, ...]:
        """The SQL that its template has beside the seed, in order: its setup, then its plants."""
        return (*([self.setup] if self.setup else []), *(plant.sql for plant in self.plants.values()))


def _gate(value: object) -> object:
    if not isinstance(value, bool) and value != "writes":
        raise ValueError(f"expected on, off or writes, not {value!r}")
    return value


class SuiteSpec(_Spec):
    """suite.yaml."""

    suite: Annotated[str, Field(pattern=_NAME, description="The suite's name.")]
    seed: SeedSpec
    role: Annotated[str | None, Field(description="Whose rights the tools have; it owns nothing.")] = None
    agent: Annotated[AnyAgent, Field(description="The agent under test.")]
    models: ModelsSpec = ModelsSpec()
    budget: Annotated[BudgetSpec, Field(description="The most that a launch may use.")] = BudgetSpec()
    count: Annotated[int, Field(ge=1, le=100_000, description="How many conversations a launch plans.")] = 20
    repeat: Annotated[
        int, Field(ge=1, le=100, description="How often each of them, to see whether it goes the same way.")
    ] = 1
    turns: Annotated[int, Field(ge=1, le=200, description="The most turns of a conversation.")] = 12
    draw: Annotated[int, Field(description="Another number, another draw of personas.")] = 1
    personas: CastSpec
    cases: Annotated[list[CaseSpec], Field(min_length=1, description="The situations.")]
    rules: Annotated[str, Field(description="The file of the rules.")]
    comparison: Annotated[
        ComparisonSpec, Field(description="What counts as a difference for `redteam compare`.")
    ] = ComparisonSpec()
    compare: Annotated[
        Policies, Field(description="Which differences of columns count; all do that are not named.")
    ] = Policies()
    collateral: Annotated[
        bool | Literal["writes"],
        BeforeValidator(_gate),
        Field(
            description="Whether a change that no rule allows is a failure; `writes`: a write to a "
            "table that shows no difference, too."
        ),
    ] = True
    gates: Annotated[
        GatesSpec, Field(description="What a run must reach to be green; written before the run.")
    ] = GatesSpec()

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
        dispositions: those that the suite uses, its own among them, by name.
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
    def gate(self) -> Gate:
        """What the collateral gate looks at."""
        match self.spec.collateral:
            case True:
                return "changes"
            case False:
                return "off"
            case "writes":
                return "writes"

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

    @property
    def questions(self) -> Mapping[str, Judge]:
        """The questions to a judge of the rules that some case names, by rule."""
        used = {name for case in self.spec.cases for name in case.rubric}
        return {
            name: rule.judge for name, rule in self.rules.items() if name in used and rule.judge is not None
        }

    def weights_of(self, case_id: str) -> Mapping[str, int]:
        """Who comes how often in a case: disposition to weight."""
        return self.case(case_id).dispositions or self.spec.personas.weights

    def parts_of(self, case_id: str) -> CaseParts:
        """What a case says of a script."""
        case = self.case(case_id)
        return CaseParts(
            id=case.id, demand=case.demand, facts=case.facts, ends=case.ends, cap=self.spec.turns
        )

    def script_of(self, planned: Planned) -> Script:
        """The script of a planned conversation."""
        disposition = self.dispositions[planned.disposition]
        return build_script(
            planned.persona,
            self.parts_of(planned.case),
            disposition,
            claims=planned.claims,
            others=planned.others,
        )


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
    folder = path.parent
    known = {**load_dispositions(), **_own_dispositions(folder / "dispositions")}
    spec = document.validate(SuiteSpec, context={"dispositions": tuple(known)})
    rules_path = _inside(folder, spec.rules, document, ("rules",))
    rules_document = read_document(rules_path)
    try:
        rules = parse_rules(rules_document.data)
    except ValidationError as error:
        raise UsageError(rules_document.explain(error)) from None
    _check_rubrics(spec, rules, document)
    _check_gates(spec, document)
    for place, name in _files(spec):
        _inside(folder, name, document, place)
    used = {*spec.personas.weights, *(name for case in spec.cases for name in case.dispositions or ())}
    return Suite(
        spec=spec,
        folder=folder,
        document=document,
        rules=rules,
        rules_document=rules_document,
        dispositions={name: one for name, one in known.items() if name in used},
    )


def _own_dispositions(folder: Path) -> dict[str, Disposition]:
    """The dispositions that a suite brings, `dispositions/NAME.yaml`; one may replace one that ships."""
    own: dict[str, Disposition] = {}
    for path in sorted(folder.glob("*")) if folder.is_dir() else ():
        if path.suffix in (".yml", ".json"):
            raise UsageError(f"{path} would not be read; name it {path.stem}.yaml")
        if path.suffix != ".yaml":
            continue
        if not re.match(_NAME, path.stem):
            raise UsageError(
                f"{path}: {path.stem!r} cannot name a disposition; use letters, digits, `_`, `.` and `-`"
            )
        own[path.stem] = read_document(path).validate(Disposition, context={"name": path.stem})
    return own


def _check_rubrics(spec: SuiteSpec, rules: Mapping[str, Rule], document: Document) -> None:
    for number, case in enumerate(spec.cases):
        for index, name in enumerate(case.rubric):
            if name not in rules:
                place = document.where(("cases", number, "rubric", index))
                raise UsageError(
                    f"{place}: case {case.id!r} names rule {name!r}, which {spec.rules} does not have; "
                    f"it has: {', '.join(rules)}"
                )


def _check_gates(spec: SuiteSpec, document: Document) -> None:
    """A limit for a rule that judges nothing would be there and never be looked at."""
    judging = {COLLATERAL, *(name for case in spec.cases for name in case.rubric)}
    for name in spec.gates.rules:
        if name not in judging:
            place = document.where(("gates", "rules", name))
            raise UsageError(
                f"{place}: gates.rules names {name!r}, which is in no case's rubric; "
                f"there are: {', '.join(sorted(judging))}"
            )


def _files(spec: SuiteSpec) -> list[tuple[tuple[int | str, ...], str]]:
    files: list[tuple[tuple[int | str, ...], str]] = [
        (("seed", "files", number), name) for number, name in enumerate(spec.seed.files)
    ]
    for number, case in enumerate(spec.cases):
        files += [(("cases", number, "setup"), case.setup)] if case.setup else []
        files += [
            (("cases", number, "plants", name, "sql"), plant.sql) for name, plant in case.plants.items()
        ]
    if isinstance(spec.agent, PythonAgent) and spec.agent.claude is not None:
        files.append((("agent", "claude", "system"), spec.agent.claude.system))
    return files


def _inside(folder: Path, name: str, document: Document, place: tuple[int | str, ...]) -> Path:
    path = folder / name
    if not path.exists():
        raise UsageError(f"{document.where(place)}: {path} is not there")
    return path
