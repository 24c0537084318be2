"""The clinic world on a real server, and conversations in it without a harness.

The agent runs in this process, on a fork of its own and with a context bound, as it does in the agent
process. A conversation is played by the scripted actor of the personas room and judged by the rubrics room.
"""

from __future__ import annotations

import contextlib
import importlib
import secrets
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from redteam_forker.changes import ChangeSet, before_schema, collect_changes, since
from redteam_forker.fork import close_fork, connect_fork_admin, create_fork, drop_fork
from redteam_forker.seeds import read_seed
from redteam_forker.template import build_template
from redteam_personas import (
    CaseParts,
    CastSpec,
    Disposition,
    FactSpec,
    OfflineSpec,
    RevealState,
    ScriptedActor,
    build_script,
    check_offline,
    draw_cast,
    hear,
    held_facts,
    load_dispositions,
    take_line,
    view_of,
)
from redteam_rubrics import Evidence, Policies, grade, outcome_of, parse_rules
from redteam_sdk import Session, context, db, record
from redteam_sdk.claims import Context

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
    from datetime import date
    from types import ModuleType

    import asyncpg

    from redteam_forker.fork import Fork
    from redteam_forker.seeds import Seed
    from redteam_forker.servers import Server
    from redteam_forker.template import Template
    from redteam_personas import Cast, Persona
    from redteam_rubrics import Rule, Verdict

__all__ = [
    "FOLDER",
    "Clinic",
    "Played",
    "agent_modules",
    "build_clinic",
    "clinic_seed",
    "evasive_by",
    "set_clock",
    "suite",
]

FOLDER = Path(__file__).resolve().parents[2] / "seeds" / "clinic"
_MODULES = ("agent", "fakes", "language", "queries", "refusals", "tools")
_LIFETIME_S = 600.0


def suite() -> dict[str, Any]:
    """What suite.yaml says."""
    data: dict[str, Any] = yaml.safe_load((FOLDER / "suite.yaml").read_text(encoding="utf-8"))
    return data


def clinic_seed() -> Seed:
    """The seed as the suite describes it."""
    block = suite()["seed"]
    return read_seed(FOLDER, block["files"], anchor=block["anchor"], moves=block["moves"])


@contextlib.contextmanager
def agent_modules() -> Iterator[dict[str, ModuleType]]:
    """Import the agent's modules, whose names are everyday words, and forget them afterwards."""
    before = {name: sys.modules.pop(name) for name in _MODULES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in _MODULES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in _MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(before)


@contextlib.contextmanager
def armed(host: str) -> Iterator[None]:
    """Make this process one that serves redteam traffic, for a while."""
    key = Ed25519PrivateKey.generate().public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    context.arm(context.Trust(issuer="tests", audience="clinic", keys={"k": pem}, hosts=frozenset({host})))
    try:
        yield
    finally:
        context.disarm()


class _Recorder:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def emit(self, event: dict[str, Any]) -> None:
        self.events.append(event)


class _World:
    """The end state, as rules ask for it."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def fetch(self, sql: str, args: Sequence[object]) -> list[Mapping[str, object]]:
        async with self._connection.transaction():
            return [dict(row) for row in await self._connection.fetch(sql, *args)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A finished conversation.

    Attributes:
        lines: what was said, in order.
        ended: whether the caller said goodbye before the cap.
        verdicts: one for each rule, and the collateral gate's.
        booked: the patient's booked visits at the end.
    """

    lines: tuple[tuple[str, str], ...]
    ended: bool
    verdicts: tuple[Verdict, ...]
    booked: tuple[Mapping[str, Any], ...]

    @property
    def outcome(self) -> str:
        return outcome_of(self.verdicts)

    @property
    def broken(self) -> set[str]:
        """Names of the rules that did not pass."""
        return {verdict.rule for verdict in self.verdicts if verdict.status != "pass"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Clinic:
    """The world as a template, with the suite's cast drawn from it."""

    server: Server
    template: Template
    cast: Cast
    rules: Mapping[str, Rule]
    modules: Mapping[str, ModuleType]

    def case(self, case_id: str) -> dict[str, Any]:
        found: dict[str, Any] = next(case for case in suite()["cases"] if case["id"] == case_id)
        return found

    @contextlib.asynccontextmanager
    async def fork(self) -> AsyncIterator[tuple[Fork, asyncpg.Connection]]:
        """A fork and an administration session in it."""
        fork = await create_fork(self.server, self.template, lifetime_s=_LIFETIME_S)
        try:
            admin = await connect_fork_admin(self.server, fork)
            try:
                yield fork, admin
            finally:
                await admin.close()
        finally:
            await drop_fork(self.server, fork)

    @contextlib.asynccontextmanager
    async def on_fork(self, fork: Fork) -> AsyncIterator[None]:
        """Bind a context, so that the tools run on the fork."""
        now = datetime.now(UTC)
        bound = Context(
            tenant="tests",
            run="run",
            conversation=fork.name,
            host=fork.host,
            port=fork.port,
            database=fork.database,
            user=fork.user,
            password=fork.password,
            not_before=now - timedelta(minutes=1),
            expires_at=now + timedelta(seconds=_LIFETIME_S),
            token_id=secrets.token_hex(8),
        )
        with armed(fork.host), context.bound(bound):
            try:
                yield
            finally:
                await db.close_context(bound)

    async def personas(self, case_id: str, sql: str = "true") -> list[Persona]:
        """Who is cast for a case and is a patient `p` for whom the condition holds in the baseline."""
        baseline = await self.server.connect(self.template.baseline)
        try:
            wanted = {
                str(row["id"]) for row in await baseline.fetch(f"SELECT p.id FROM patients p WHERE {sql}")
            }
        finally:
            await baseline.close()
        return [persona for persona in self.cast.rows_for(case_id) if persona.key in wanted]

    async def play(
        self,
        case_id: str,
        persona: Persona,
        disposition: Disposition,
        *,
        seed: int = 1,
        now: str | None = None,
    ) -> Played:
        """Play a case to its end, on a fork that is dropped afterwards.

        Args:
            case_id: which case.
            persona: who calls.
            disposition: how they behave.
            seed: of the scripted actor.
            now: what the clinics' wall clock shows, instead of the time it is.
        """
        case = self.case(case_id)
        parts = CaseParts(
            id=case_id,
            demand=case["demand"],
            facts={name: FactSpec.model_validate(fact) for name, fact in case["facts"].items()},
            ends=case["ends"],
            cap=suite()["turns"],
        )
        offline = OfflineSpec.model_validate(case["offline"])
        check_offline(offline, parts, list(persona.row))
        script = build_script(persona, parts, disposition)
        actor = ScriptedActor(offline.fill(persona), disposition, seed=seed)
        recorder, session = _Recorder(), Session(id="c001")
        async with self.fork() as (fork, admin):
            earlier = ChangeSet()
            if now is not None:
                await set_clock(admin, now)
                earlier = await self._changes(fork)
            lines: list[tuple[Any, str]] = []
            state, heard, ended = RevealState(), "", False
            async with self.on_fork(fork):
                with record.recording(recorder):
                    for turn in range(1, parts.cap + 1):
                        state, _ = hear(state, script.facts, heard, turn)
                        view = view_of(script, state, lines, turn)
                        taken = await take_line(actor, view, held_facts(script.facts, state))
                        record.emit("user", text=taken.line.text, turn=turn)
                        heard = await self.modules["agent"].front_desk(taken.line.text, session)
                        record.emit("agent", text=heard, turn=turn)
                        lines += [("user", taken.line.text), ("agent", heard)]
                        if ended := taken.line.end:
                            break
            await close_fork(self.server, fork)
            changes = since(await self._changes(fork), earlier)
            evidence = Evidence.from_json(
                conversation=session.id,
                persona=persona.row,
                disposition=disposition.name,
                events=recorder.events,
                changes=changes.to_json(),
            )
            verdicts = await self._judge(case, evidence, admin, changes)
            booked = await admin.fetch(
                "SELECT id, kind, minutes, starts_at, provider_id FROM appointments"
                " WHERE patient_id = $1 AND status = 'booked' ORDER BY id",
                persona.row["id"],
            )
        return Played(
            lines=tuple(lines), ended=ended, verdicts=verdicts, booked=tuple(dict(row) for row in booked)
        )

    async def _changes(self, fork: Fork) -> ChangeSet:
        return await collect_changes(
            self.server, baseline=self.template.baseline, fork=fork.name, watermark=fork.watermark
        )

    async def _judge(
        self, case: Mapping[str, Any], evidence: Evidence, admin: asyncpg.Connection, changes: ChangeSet
    ) -> tuple[Verdict, ...]:
        rules = {name: self.rules[name] for name in case["rubric"]}
        transaction = admin.transaction()
        await transaction.start()
        try:
            for statement in before_schema(changes):
                await admin.execute(statement)
            policies = Policies.model_validate(suite()["compare"])
            return await grade(rules, evidence, _World(admin), policies=policies)
        finally:
            await transaction.rollback()


async def set_clock(admin: asyncpg.Connection, now: str) -> None:
    """Stop the clinics' wall clock at a moment."""
    moment = datetime.fromisoformat(now)
    await admin.execute(
        "CREATE OR REPLACE FUNCTION clinic_now() RETURNS timestamp LANGUAGE sql STABLE"
        f" RETURN timestamp '{moment.isoformat(sep=' ')}'"
    )


def evasive_by(phrase: str) -> Disposition:
    """The evasive disposition, with one way to put off a question."""
    evasive = load_dispositions()["evasive"]
    offline = evasive.offline.model_copy(update={"deflect": (phrase,)})
    return evasive.model_copy(update={"offline": offline})


@contextlib.asynccontextmanager
async def build_clinic(
    server: Server, today: date, modules: Mapping[str, ModuleType]
) -> AsyncIterator[Clinic]:
    """Build (or find) the template for a day, and draw the suite's cast from its baseline.

    The template stays, for the next test that wants the same week; it goes with the server.
    """
    data = suite()
    template = await build_template(server, clinic_seed(), role=data["role"], today=today)
    baseline = await server.connect(template.baseline)
    try:
        spec = CastSpec.model_validate(data["personas"])
        cast = await draw_cast(baseline, spec, {case["id"]: case["who"] for case in data["cases"]})
    finally:
        await baseline.close()
    rules = parse_rules(yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8")))
    yield Clinic(server=server, template=template, cast=cast, rules=rules, modules=modules)
