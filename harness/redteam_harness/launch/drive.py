"""Holds one conversation on a fork of its own: acts on what `conversation.step` decides.

    fork ─► agent session, probed ─► turns ─► agent closed ─► settle ─► change set, rules ─► drop

This is the boundary at which a fault of ours becomes an outcome: a conversation that was held always yields a
`Finished`. Only evidence that cannot be written, and a cancelled launch, go through.
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import structlog

from redteam_forker import DropFailed, close_fork, keep_fork
from redteam_harness.agents.agent import AgentFault, AgentLost, Opening
from redteam_harness.evidence.storage import EvidenceFault
from redteam_harness.evidence.trace import Trace, now
from redteam_harness.launch.conversation import Ending, Faulted, Whose
from redteam_harness.launch.externals import faults_of
from redteam_harness.launch.facts import conversation_facts
from redteam_harness.launch.judge import judge
from redteam_harness.launch.talk import talk
from redteam_harness.registers.attestation import Attesting, agent_kind
from redteam_harness.registers.catalog import left_of
from redteam_harness.registers.degraded import degraded, demanded
from redteam_harness.report.attacks import attacks_of
from redteam_harness.report.late import late_lines
from redteam_harness.report.mocks import called_externals
from redteam_harness.report.summary import Finished
from redteam_sdk.errors import EnvironmentFault, RedteamError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from redteam_forker import Fork
    from redteam_harness.launch.judge import Judged
    from redteam_harness.launch.plan import Planned
    from redteam_harness.launch.recorded import Track
    from redteam_harness.launch.stage import Stage

__all__ = ["hold"]

_SETTLE_S = 5.0
_CHECKOUT_S = 120.0
_CLEANUP_S = 60.0
_MARGIN_S = 300.0
_DAY_S = 86_400.0  # no token is valid for longer

_log = structlog.get_logger()


@dataclass(slots=True)
class _Course:
    """How far a conversation came."""

    attesting: Attesting
    ending: Ending | None = None
    judged: Judged | None = None
    kept: str | None = None

    def fail(self, whose: Whose, cause: str, message: str) -> None:
        fault = Faulted(whose=whose, cause=cause, message=message)
        self.ending, self.judged = Ending(kind="fault", reason=message, fault=fault), None


async def hold(planned: Planned, stage: Stage) -> Finished:
    """Hold one conversation and store its evidence; it is judged, or a fault of ours says why not.

    Raises:
        EvidenceFault: the evidence cannot be written; the launch must end.
    """
    started = time.monotonic()
    folder = stage.run.conversation(planned.id)
    track = None if stage.replay is None else stage.replay.track(planned, stage.suite.script_of(planned))
    attesting = Attesting(stage.server.facts, agent_kind(stage.suite.spec.agent), stage.walls)
    finished = await _held_for_sure(planned, stage, started, track, attesting)
    if finished.outcome == "derailed" and stage.replay is not None and stage.replay.escalates:
        _log.info("conversation_escalated", conversation=planned.id, cause=finished.cause)
        (folder / "trace.jsonl").replace(folder / "trace-derailed.jsonl")
        return await _held_for_sure(planned, stage, started, None, attesting, derailed=finished)
    return finished


async def _held_for_sure(
    planned: Planned,
    stage: Stage,
    started: float,
    track: Track | None,
    attesting: Attesting,
    *,
    derailed: Finished | None = None,
) -> Finished:
    """Hold it, and once more alone where the agent process that it shared was lost."""
    folder = stage.run.conversation(planned.id)
    try:
        return await _held(planned, stage, started, track, attesting, alone=False, derailed=derailed)
    except AgentLost as lost:
        _log.info("conversation_held_again", conversation=planned.id, cause=str(lost))
        (folder / "trace.jsonl").replace(folder / "trace-lost.jsonl")
        return await _held(planned, stage, started, track, attesting, alone=True, derailed=derailed)


async def _held(
    planned: Planned,
    stage: Stage,
    started: float,
    track: Track | None,
    attesting: Attesting,
    *,
    alone: bool,
    derailed: Finished | None,
) -> Finished:
    course = _Course(attesting)
    with Trace(stage.run.conversation(planned.id) / "trace.jsonl") as trace:
        if derailed is not None:
            trace.record("escalated", 0, cause=derailed.cause, message=derailed.message)
        if alone:
            trace.record("retry", 0, cause="the shared agent process was lost; now in a process of its own")
        try:
            with stage.calls.conversation(
                planned.id, sink=_sink(trace), waiting=partial(stage.progress.waiting, planned.id)
            ):
                await _on_a_fork(planned, stage, trace, course, track, alone=alone)
        except (AgentLost, EvidenceFault):
            raise
        except AgentFault as fault:
            course.fail("replay" if fault.cause == "mock-miss" else "infra", fault.cause, str(fault))
            trace.record("agent_fault", _turns(trace), cause=fault.cause, traceback=fault.traceback)
        except RedteamError as error:
            course.fail("infra", _snake(type(error).__name__), str(error))
        except Exception as error:  # noqa: BLE001 - the conversation's boundary: a bug of ours ends this conversation, told in the log, and no other
            _log.exception("conversation_crashed", conversation=planned.id)
            course.fail("infra", "internal_error", f"{type(error).__name__}: {error}")
        assert course.ending is not None
        if course.ending.fault is not None:
            ours = course.ending.fault
            trace.record("fault", _turns(trace), whose=ours.whose, cause=ours.cause, message=ours.message)
    if course.judged is not None:
        stage.run.append_verdicts(
            {"conversation": planned.id, "attempt": stage.attempt, **verdict}
            for verdict in course.judged.verdicts
        )
    return _finished(planned, course, trace, stage, seconds=time.monotonic() - started)


async def _on_a_fork(
    planned: Planned, stage: Stage, trace: Trace, course: _Course, track: Track | None, *, alone: bool
) -> None:
    async with _fork_of(planned, stage, course) as fork:
        course.ending = await _converse(planned, stage, fork, trace, track, course.attesting, alone=alone)
        doing = partial(stage.progress.doing, planned.id, _turns(trace))
        doing("settling")
        settled = await close_fork(stage.server, fork, settle_s=_SETTLE_S, registry=stage.registry)
        if settled.late or settled.sessions:
            trace.record(
                "late",
                _turns(trace),
                sessions=[asdict(session) for session in settled.sessions],
                ended=settled.late,
                waited_s=round(settled.waited_s, 3),
            )
        if course.ending.fault is None:
            course.judged = await judge(
                planned,
                trace.events,
                suite=stage.suite,
                server=stage.server,
                template=stage.templates[planned.case],
                fork=fork,
                run=stage.run,
                model=stage.judge,
                doing=doing,
            )
        failed = course.judged is not None and course.judged.outcome == "fail"
        if stage.keep == "all" or (stage.keep == "failed" and failed):
            await keep_fork(stage.server, fork, registry=stage.registry)
            course.kept = fork.name
            course.attesting.kept()


async def _converse(
    planned: Planned,
    stage: Stage,
    fork: Fork,
    trace: Trace,
    track: Track | None,
    attesting: Attesting,
    *,
    alone: bool,
) -> Ending:
    """From the agent's session to its close; the session is probed before the first turn."""
    script = stage.suite.script_of(planned)

    def doing(turn: int, what: str) -> None:
        trace.turn = turn
        stage.progress.doing(planned.id, turn, what)

    stage.progress.doing(planned.id, 0, "starting the agent")
    faults = faults_of(stage.suite.case(planned.case).externals)
    token = stage.mint.token(planned.id, fork, lifetime_s=_longest_s(stage), faults=faults)
    session = await stage.agent.open(
        Opening(
            conversation=planned.id,
            token=token,
            fork=fork,
            sink=_sink(trace),
            alone=alone,
            answers=None if track is None else track.answers,
        )
    )
    try:
        if session.database != fork.name:
            raise AgentFault(
                "isolation",
                f"the agent's tools see database {session.database!r}, not this conversation's fork; "
                "nothing was said to it",
            )
        trace.record("probed", 0, database=session.database, fork=fork.name, role_reaches=list(fork.reaches))
        attesting.opened(session.database, session)
        if lacking := demanded(stage.isolation, degraded(attesting.to_json(), over=False)):
            why = "; ".join(f"{one.message} ({one.code})" for one in lacking)
            raise AgentFault(
                "isolation",
                f"isolation is demanded, and {why}; nothing was said to the agent",
            )
        return await talk(
            script,
            stage.actor(planned, script) if track is None else track.actor,
            session,
            trace,
            doing=doing,
            track=track,
        )
    finally:
        with anyio.CancelScope(shield=True):
            late = await session.close()
        if late:
            trace.record("late", _turns(trace), tasks=list(late))


@asynccontextmanager
async def _fork_of(planned: Planned, stage: Stage, course: _Course) -> AsyncIterator[Fork]:
    """A fork that is gone when the context is left, unless the course says that it is kept."""
    fork = await stage.pools[planned.case].checkout(
        lifetime_s=_longest_s(stage) + _MARGIN_S,
        deadline_s=_CHECKOUT_S,
        label=f"{stage.run.id}/{planned.id}",
    )
    course.attesting.forked(fork, stage.templates[planned.case])
    stage.progress.fork_made()
    stage.reached.update(name for name in fork.reaches if name != fork.name)
    try:
        yield fork
    finally:
        if course.kept is None:
            with anyio.CancelScope(shield=True):
                await _dropped(fork, planned, stage, course.attesting)
        stage.progress.fork_gone()


async def _dropped(fork: Fork, planned: Planned, stage: Stage, attesting: Attesting) -> None:
    """Drop a fork and look whether it is gone.

    One that cannot be dropped is listed in the report and takes no verdict with it.
    """
    why, left = "", None
    try:
        with anyio.fail_after(_CLEANUP_S):
            await stage.pools[planned.case].drop(fork)
    except (DropFailed, EnvironmentFault, TimeoutError) as error:
        why = str(error) or "it took too long"
        _log.error("fork_not_dropped", fork=fork.name, reason=why)
        stage.undropped.append(fork.name)
    try:
        # Asked anew, whatever the drop said: what is attested is what the catalog shows afterwards.
        left = await left_of(stage.server, fork.name)
    except EnvironmentFault as error:
        why = why or str(error)
    attesting.dropped(left, why)


def _finished(planned: Planned, course: _Course, trace: Trace, stage: Stage, *, seconds: float) -> Finished:
    ending, judged = course.ending, course.judged
    assert ending is not None
    facts: Mapping[str, Any]
    if judged is not None:
        facts = {
            "outcome": judged.outcome,
            "verdicts": judged.verdicts,
            "changes": judged.changes,
            "cause": "undecided" if judged.undecided else "",
            "message": judged.undecided,
        }
    else:
        assert ending.fault is not None
        facts = {
            "outcome": "derailed" if ending.fault.whose == "replay" else f"{ending.fault.whose}-fault",
            "cause": ending.fault.cause,
            "message": ending.fault.message,
        }
    return Finished(
        id=planned.id,
        case=planned.case,
        persona=planned.persona.key,
        disposition=planned.disposition,
        repetition=planned.repetition,
        turns=_turns(trace),
        ending=ending.reason,
        seconds=seconds,
        kept=course.kept,
        late=late_lines(trace.events),
        attestation=course.attesting.to_json(trace.events),
        externals=called_externals(trace.events),
        attacks=attacks_of(
            conversation_facts(stage.suite, planned, stage.planted.get(planned.id, {})),
            trace.events,
            judged.verdicts if judged is not None else (),
        ),
        **facts,
    )


def _sink(trace: Trace) -> Callable[[dict[str, Any]], None]:
    """Where what happens during a turn is recorded."""

    def sink(event: dict[str, Any]) -> None:
        trace.append({"at": now(), "turn": max(trace.turn, _turns(trace)), **event})

    return sink


def _longest_s(stage: Stage) -> float:
    """How long a conversation may last at most."""
    each = stage.suite.turn_s + stage.waits_s
    return min(stage.suite.turns * each + _MARGIN_S, _DAY_S - 2 * _MARGIN_S)


def _turns(trace: Trace) -> int:
    return max((int(event["turn"]) for event in trace.events), default=0)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
