"""What a conversation's isolation lacks, by its attestation; what a launch lacks before it has any. Pure.

Each lack has a code, which stays what it is: reports group by it, and `--require-isolation` demands by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from redteam_forker import ServerFacts
    from redteam_harness.registers.attestation import AgentKind

__all__ = ["CODES_OF_LACKS", "Degraded", "IsolationLevel", "degraded", "demanded", "require_isolation"]

IsolationLevel = Literal["database", "full"]
"""What may be demanded: `database`, walls around the data; `full`, around the agent's connections, too."""

_GUARD = frozenset({"no-egress-guard", "egress-unknown"})


class Degraded(NamedTuple):
    """One thing that is less than it could be."""

    code: str
    message: str


_SERVER = Degraded(
    "existing-server",
    "forks were made on a server that is not ours: grants are the only wall between its databases",
)
_PROGRAM = Degraded(
    "no-egress-guard",
    "the agent is a program of its own: no guard of ours is in it, so nothing here refuses its connections",
)
_SERVICE = Degraded(
    "egress-unknown",
    "nothing here says whether a guard is in the deployed service, so what it connected to is not known",
)
_UNGUARDED = Degraded("no-egress-guard", "no guard was armed in the agent: nothing refused its connections")
_BY_AGENT: dict[AgentKind, Degraded] = {"python": _UNGUARDED, "command": _PROGRAM, "url": _SERVICE}
_UNSEEN = Degraded("tools-unseen", "nobody said which database the agent's tools see")
_UNVERIFIED = Degraded(
    "drop-unverified", "the fork was not seen to be gone: its drop failed, or the catalog could not be asked"
)
_UNATTESTED = Degraded("unattested", "nothing was attested: the run is of an earlier version")
_REACHES = "role-reaches"
_UNTRIED = Degraded(
    "walls-untried", "nobody tried whether a fork's role can enter other databases; only its grants are known"
)


CODES_OF_LACKS = tuple(
    dict.fromkeys(
        [
            *(one.code for one in (_SERVER, _PROGRAM, _SERVICE, _UNSEEN, _UNVERIFIED, _UNATTESTED, _UNTRIED)),
            _REACHES,
        ]
    )
)
"""Every code there is."""


def degraded(record: Mapping[str, Any] | None, *, over: bool = True) -> list[Degraded]:
    """What a conversation's isolation lacked.

    Args:
        record: its attestation; None: it has none. One that never had a fork lacks nothing.
        over: whether its fork is to be gone by now.
    """
    if record is None:
        return [_UNATTESTED]
    fork = record["fork"]
    if fork is None:
        return []
    found: list[Degraded] = []
    if record["server"]["kind"] == "existing":
        found.append(_SERVER)
    others = [name for name in fork["role_reaches"] if name != fork["name"]]
    tried = record["walls"] or {}
    entered = [name for name, how in tried.items() if how == "entered"]
    if reached := sorted({*others, *entered}):
        found.append(Degraded(_REACHES, f"the fork's role could also enter {', '.join(reached)}"))
    undecided = not tried or any(how not in ("refused", "entered") for how in tried.values())
    if undecided and record["server"]["kind"] != "existing":
        found.append(_UNTRIED)
    if record["tools_saw"] is None and not over:
        found.append(_UNSEEN)
    if record["tools_saw"] is not None and record["egress"]["guard"] is None:
        found.append(_BY_AGENT[record["agent"]])
    if over and not record["kept"] and _is_there(record["drop"]):
        found.append(_UNVERIFIED)
    if any(_is_there(one["drop"]) for one in record["earlier_forks"]):
        found.append(_UNVERIFIED)
    return list(dict.fromkeys(found))


def _is_there(drop: Mapping[str, Any] | None) -> bool:
    return drop is None or drop["catalog_shows"] != []


def demanded(level: IsolationLevel | None, lacking: Iterable[Degraded]) -> list[Degraded]:
    """What of it was demanded."""
    if level is None:
        return []
    return [one for one in lacking if level == "full" or one.code not in _GUARD]


def require_isolation(level: IsolationLevel | None, facts: ServerFacts, agent: AgentKind) -> None:
    """Refuse a launch that cannot have what is demanded, before anything is made.

    Raises:
        UsageError: names everything that lacks.
    """
    lacking = [_SERVER._replace(message=_server_text(facts))] if facts.kind == "existing" else []
    if agent != "python":
        lacking.append(_BY_AGENT[agent])
    if found := demanded(level, lacking):
        what = "; ".join(f"{one.message} ({one.code})" for one in found)
        hint = (
            "; with --allow-unguarded only the walls around the data are demanded"
            if all(one.code in _GUARD for one in found)
            else ""
        )
        raise UsageError(f"--require-isolation: {what}{hint}")


def _server_text(facts: ServerFacts) -> str:
    where = f"the server at {facts.host}:{facts.port} is not ours"
    return f"{where}: grants are the only wall between its databases; leave --server out, or use docker:IMAGE"
