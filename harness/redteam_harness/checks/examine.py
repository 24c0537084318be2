"""Examines a suite: builds its data, holds idle conversations on it, and has every check look at both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from redteam_forker import open_registry
from redteam_harness.checks.finding import Finding, Subject, refusals
from redteam_harness.checks.idle import check_idle
from redteam_harness.checks.idling import first_planned
from redteam_harness.checks.mocks import check_mocks
from redteam_harness.checks.names import check_suite_names
from redteam_harness.checks.rules import check_rules_alone
from redteam_harness.checks.staging import open_ground
from redteam_harness.checks.statements import check_statements
from redteam_harness.checks.volatile import check_volatile
from redteam_harness.launch.agent_specs import HttpAgent
from redteam_harness.launch.plan import plan_suite
from redteam_harness.launch.plants import find_plants
from redteam_harness.launch.prepare import build_templates, draw
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from redteam_forker import Server
    from redteam_harness.agents.code import AgentCode
    from redteam_harness.checks.idling import Held
    from redteam_harness.checks.staging import Ground
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.progress import Progress
    from redteam_harness.launch.suite import Suite

__all__ = ["CHECKS", "CheckOptions", "Examined", "examine"]

CHECKS = (
    check_suite_names,
    check_statements,
    check_rules_alone,
    check_idle,
    check_mocks,
    check_volatile,
)
"""In the order in which their findings are shown, within a severity."""

_PER_CASE = 3
_GRAVITY = {"mistake": 0, "suggestion": 1, "note": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """How a suite is examined.

    Attributes:
        server: opens the server.
        environment: the launcher's; an agent that is started gets it without what looks like a secret.
        with_agent: whether the suite's agent may be started.
    """

    server: Callable[[], AbstractAsyncContextManager[Server]]
    environment: Mapping[str, str] = field(repr=False)
    with_agent: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found.

    Attributes:
        findings: the gravest first; within a severity in the order of the checks.
        held: the idle conversations, with their verdicts.
        undropped: names of forks that could not be dropped.
    """

    findings: tuple[Finding, ...]
    held: tuple[Held, ...] = ()
    undropped: tuple[str, ...] = ()


async def examine(suite: Suite, options: CheckOptions, progress: Progress) -> Examined:
    """Examine a suite. Its forks are gone afterwards, and nothing is written but templates that are kept.

    Raises:
        UsageError: what stops a launch so early that nothing behind it can be looked at.
        EnvironmentFault: the server failed.
    """
    async with options.server() as server, open_registry(server) as registry:
        today = datetime.now().astimezone().date()
        built = await build_templates(server, registry, suite, progress, today=today)
        cast = await draw(server, suite, built.templates)
        first = first_planned(suite, cast, _PER_CASE)
        # A larger plan begins with the conversations of a smaller one, so `first` is part of one of them.
        longest = max((plan_suite(suite, cast, repeat=1), first), key=len)
        planted = await find_plants(server, suite, built.templates, longest)
        async with open_ground(
            suite, server, registry, built, progress, planted, conversations=len(first)
        ) as ground:
            progress.say(f"idle  {len(first)} conversations in which the agent does nothing")
            idle = await ground.agent_does_nothing(first)
            held, code, refused = await _hang_up(ground, _openings(first), options, progress)
            subject = Subject(
                suite=suite,
                server=server,
                templates=built.templates,
                cast=cast,
                pools=ground.pools,
                code=code,
                held=(*idle, *held),
            )
            findings = [*refused]
            for check in CHECKS:
                findings += _new(await check(subject), findings)
    return Examined(findings=_ordered(findings), held=subject.held, undropped=tuple(ground.undropped))


async def _hang_up(
    ground: Ground, openings: Sequence[Planned], options: CheckOptions, progress: Progress
) -> tuple[list[Held], AgentCode | None, list[Finding]]:
    """The conversations of one line: with the suite's agent where it can be started, else with none."""
    suite = ground.suite
    refused: list[Finding] = []
    if options.with_agent and not isinstance(suite.spec.agent, HttpAgent):
        progress.say(
            f"idle  {len(openings)} conversations in which the person hangs up on {suite.spec.agent.name}"
        )
        try:
            held, code = await ground.person_hangs_up_on_agent(openings, options.environment)
        except* UsageError as group:
            refused = [
                replace(finding, place=finding.place or suite.document.where(("agent",)))
                for finding in refusals(group)
            ]
        else:
            return held, code, []
    progress.say(f"idle  {len(openings)} conversations in which the person hangs up, too")
    return await ground.person_hangs_up(openings), None, refused


def _openings(planned: Iterable[Planned]) -> list[Planned]:
    """The first conversation of each case."""
    first: dict[str, Planned] = {}
    for one in planned:
        first.setdefault(one.case, one)
    return list(first.values())


def _new(findings: Iterable[Finding], known: Iterable[Finding]) -> list[Finding]:
    """Those about what no earlier check found a mistake in: a wrong name shows itself in its SQL, too.

    An earlier check says more plainly what is wrong, and a later one only what follows from it.
    """
    told = {_subject_of(finding) for finding in known if finding.severity == "mistake" and finding.about}
    return [finding for finding in findings if _subject_of(finding) not in told]


def _subject_of(finding: Finding) -> tuple[str, str]:
    return finding.about, finding.place.rpartition(":")[0]


def _ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """The gravest first, each once."""
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: _GRAVITY[finding.severity]))
