"""Which database the running code may use: production, one conversation's fork, or none.

The rule: no token is production, a valid token is its fork, anything else is refused. A process that is armed
for redteam never uses production; where no context is bound in it, there is no database at all.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from redteam_sdk.claims import Context
from redteam_sdk.errors import (
    ContextError,
    ExpiredContext,
    InvalidContext,
    NoContext,
    NotConfigured,
)
from redteam_sdk.trust import Trust, read_trust
from redteam_sdk.verify import ALGORITHM, check, verify

if TYPE_CHECKING:
    import contextvars
    from collections.abc import Iterator
    from types import ModuleType

__all__ = [
    "ALGORITHM",
    "CONTEXT_VARIABLE",
    "HEADER",
    "TRUST_VARIABLE",
    "Context",
    "Trust",
    "admit",
    "adopt",
    "arm",
    "arm_from_env",
    "bind",
    "bound",
    "bound_in",
    "current",
    "current_or_none",
    "disarm",
    "handover",
    "is_armed",
    "own",
    "resolve",
    "serialise",
    "verify",
]

HEADER = "Redteam-Context"
TRUST_VARIABLE = "REDTEAM_TRUST"
CONTEXT_VARIABLE = "REDTEAM_CONTEXT"

# libpq takes these over what an address says, also over a fork's: PGHOSTADDR replaces the host outright.
_BENDING = ("PGHOSTADDR", "PGSERVICE")

_log = logging.getLogger(__name__)

_bound: ContextVar[Context | None] = ContextVar("redteam_context", default=None)
_trust: Trust | None = None
# The context of a process that belongs to one conversation as a whole; see `own`.
_own: Context | None = None
# Whether it was seen that the environment says nothing of redteam. Looked at once, at the first use.
_plain = False


def arm(trust: Trust) -> None:
    """Make this process accept tokens by this trust; from now on it never uses production.

    From now on its Python code reaches forks and what the trust's `egress` lists, and nothing else.

    Arming again replaces the trust, which is how keys are rotated; a context that is bound at that moment is
    kept until its block or its time ends. The trust goes into the environment (`REDTEAM_TRUST`), so that a
    child process which is not armed itself refuses production too. PGHOSTADDR and PGSERVICE are removed from
    it: with them libpq would take a fork's address for production's.

    Raises:
        EnvironmentFault: the egress guard could not be installed. The process has no production all the same.
    """
    global _trust, _plain
    _trust, _plain = trust, False
    os.environ[TRUST_VARIABLE] = json.dumps(trust.to_json())
    for name in _BENDING:
        os.environ.pop(name, None)
    _egress().start(trust.egress)


def arm_from_env() -> bool:
    """Arm this process if `REDTEAM_TRUST` is set: to the path of a file with a trust in JSON, or to the JSON.

    Call it once where the service starts. Production does not set the variable, and nothing happens.

    Returns:
        Whether the process is armed now.

    Raises:
        UsageError: the variable is set, and holds no trust that can be used. The service must not start.
    """
    if not _arm_from_env():
        return False
    _log.warning("this process is armed for redteam: it has no way to production, only to forks by token")
    return True


def disarm() -> None:
    """Undo `arm`. For tests: a process that served redteam traffic should end, not turn to production."""
    global _trust, _own, _plain
    _trust, _own, _plain = None, None, False
    os.environ.pop(TRUST_VARIABLE, None)
    _egress().stop()


def is_armed() -> bool:
    """Whether this process accepts redteam contexts, and therefore never uses production."""
    return _trust is not None


def admit(token: object) -> Context | ContextError:
    """What a token that was presented to this process grants, or why it is refused. Binds nothing."""
    if _trust is None:
        return NotConfigured(
            "a redteam token was presented to a process that is not armed; refuse the request"
        )
    outcome = check(token, _trust)
    return outcome if isinstance(outcome, ContextError) else _clash(outcome) or outcome


def own(token: object) -> Context:
    """Give this whole process to one conversation: from now on its context is bound wherever none is.

    Also in threads, executors and workers of code that knows nothing of contexts. For a process that serves
    one conversation and then ends; another conversation's context is refused in it.

    Raises:
        NotConfigured: this process is not armed.
        ContextError: the token is refused, or the process belongs to another conversation.
    """
    global _own
    outcome = admit(token)
    del token
    if isinstance(outcome, ContextError):
        raise outcome
    _egress().admit_context(outcome)
    _own = outcome
    return outcome


@contextmanager
def bind(token: object) -> Iterator[Context]:
    """Verify a token and run the block, and the tasks it starts, on the token's fork.

    Raises:
        NotConfigured: this process is not armed; the token is refused, never ignored.
        ContextError: see `verify`.
    """
    outcome = admit(token)
    del token  # an error's frames hold no token
    if isinstance(outcome, ContextError):
        raise outcome
    with bound(outcome) as context:
        yield context


@contextmanager
def bound(context: Context) -> Iterator[Context]:
    """Run the block, and the tasks it starts, on the fork of a context that `verify` returned.

    Raises:
        NotConfigured: this process is not armed.
        InvalidContext: another conversation's context is bound already.
    """
    if _trust is None:
        raise NotConfigured(
            "a redteam context was to be bound in a process that is not armed; call arm() first"
        )
    clash = _clash(context)
    if clash is not None:
        raise clash
    _egress().admit_context(context)
    reset = _bound.set(context)
    try:
        yield context
    finally:
        _bound.reset(reset)


def serialise() -> str:
    """The context that is bound here, as the token it came in: for another process, a queue, a job.

    It is a secret, as good as the fork's password, until the token's time is over. `bind` is its reverse, in
    a process that is armed with the same trust.

    Raises:
        NoContext: none is bound here.
        InvalidContext: the bound context did not come from a token.
    """
    context = current()
    if context.token is None:
        raise InvalidContext("the context that is bound here was not made from a token; bind a token")
    return context.token


def handover() -> dict[str, str]:
    """Environment variables that give a child process this context, once the child calls `adopt`.

    In production it is empty. The token is in the child's environment until the child adopts it, and can be
    read there by processes of the same user.

    Raises:
        NoContext: the process is armed, and no context is bound here.
    """
    if resolve() is None or _trust is None:
        return {}
    return {TRUST_VARIABLE: json.dumps(_trust.to_json()), CONTEXT_VARIABLE: serialise()}


def adopt() -> Context | None:
    """Take over what the parent handed over: arm this process, and bind the context from here on.

    The token is taken out of the environment, so a grandchild is given it only by `handover` again. Where
    nothing was handed over and nothing says redteam, as in production, nothing happens.

    Returns:
        The context, or None where no token was handed over.

    Raises:
        UsageError: the trust that was handed over cannot be used.
        ContextError: the token is refused, or came without a trust.
    """
    token = os.environ.pop(CONTEXT_VARIABLE, None)
    _arm_from_env()
    if token is None:
        return None
    outcome = admit(token)
    del token
    if isinstance(outcome, ContextError):
        _forbid_production()
        raise outcome
    _egress().admit_context(outcome)
    _bound.set(outcome)
    return outcome


def current_or_none() -> Context | None:
    """The context that is bound here, or None. None alone does not mean production: see `resolve`."""
    context = _bound.get()
    return _own if context is None else context


def bound_in(context: contextvars.Context) -> Context | None:
    """The redteam context that is bound in another task's contextvars, or None."""
    found = context.get(_bound)
    return _own if found is None else found


def current() -> Context:
    """The context that is bound here.

    Raises:
        NoContext: there is none.
    """
    context = current_or_none()
    if context is None:
        raise NoContext(_NO_CONTEXT if _trust is not None else "no redteam context is bound here")
    return context


def resolve() -> Context | None:
    """Whose data the running code may use: a fork's context, or None for production.

    Raises:
        NoContext: no context is bound here, and production is out of reach: the process is armed, or its
            environment says that it should be.
        ExpiredContext: the bound context's time is over.
    """
    context = _bound.get()
    if context is None:
        if _own is None:
            if not _plain or _trust is not None:
                _require_production()
            return None
        context = _own
    if context.expired(leeway_s=_trust.leeway_s if _trust is not None else 0.0):
        raise ExpiredContext(f"the context of conversation {context.conversation!r} has expired")
    return context


def _egress() -> ModuleType:
    from redteam_sdk.egress import guard  # here, so that production never loads it

    return guard


def _arm_from_env() -> bool:
    value = os.environ.get(TRUST_VARIABLE)
    if value:
        arm(read_trust(value))
    return is_armed()


def _require_production() -> None:
    """Where no context is bound it is production, unless anything at all speaks against it."""
    global _plain
    if _trust is not None:
        raise NoContext(_NO_CONTEXT)
    for name in (TRUST_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(name):
            raise NoContext(
                f"{name} is set, so this process belongs to redteam, and it is not armed: call"
                " context.arm_from_env() where it starts, or context.adopt() in a child that was handed a"
                " context. For production, unset it"
            )
    _plain = True


def _forbid_production() -> None:
    # A child whose token was refused, and that goes on regardless, must not find production instead.
    global _plain
    _plain = False
    os.environ.setdefault(TRUST_VARIABLE, "refused")


def _clash(context: Context) -> InvalidContext | None:
    """The refusal of a context where another one is bound already."""
    outer = current_or_none()
    if outer is None or outer.token_id == context.token_id:
        return None
    return InvalidContext(
        f"conversation {outer.conversation!r} is bound here; it cannot become {context.conversation!r}"
    )


_NO_CONTEXT = (
    "this process is armed for redteam, but no context is bound where a database or an external tool was"
    " asked for. Tasks and asyncio.to_thread keep the context; threading.Thread, run_in_executor and workers"
    " started earlier lose it: hand them redteam_sdk.carry(function) instead of the function"
)
