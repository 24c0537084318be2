"""Faults that external tools are to play in one conversation, as its redteam context says. Data only."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ScriptedFault", "fault_for", "read_faults"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_MAX_FAULTS = 32
_MAX_CALL = 10_000


class ScriptedFault(NamedTuple):
    """One fault of one external tool.

    Attributes:
        external: the tool's name.
        fault: `timeout`, `duplicate`, `bounce`, or a name that the tool's mark gives an exception.
        call: which of the conversation's calls of the tool, from 1; None: each.
        share: the share of those calls that fail, up to 1; which ones, the conversation's name decides.
        happened: whether the mock runs before the fault, so that the effect is there; None: as the fault is.
    """

    external: str
    fault: str
    call: int | None = None
    share: float = 1.0
    happened: bool | None = None

    @property
    def runs_mock(self) -> bool:
        """Whether the effect happens all the same. Of a time-out nobody can know; here it does."""
        return self.fault == "timeout" if self.happened is None else self.happened

    def strikes(self, conversation: str, number: int) -> bool:
        """Whether it is played at the conversation's n-th call of the tool. The same every time."""
        if self.call is not None and self.call != number:
            return False
        if self.share >= 1:
            return True
        drawn = hashlib.sha256(f"{conversation}\0{self.external}\0{self.fault}\0{number}".encode()).digest()
        return int.from_bytes(drawn[:8], "big") < self.share * 2**64


def fault_for(
    faults: Sequence[ScriptedFault], external: str, conversation: str, number: int
) -> ScriptedFault | None:
    """The first fault that is to be played at a call, or None."""
    return next(
        (one for one in faults if one.external == external and one.strikes(conversation, number)), None
    )


def read_faults(data: object) -> tuple[ScriptedFault, ...]:
    """Read the faults of a token's claim: a list of lists of a fault's five attributes.

    Raises:
        ValueError: says which part is not as it must be, without its value.
    """
    if not isinstance(data, list) or not 0 < len(data) <= _MAX_FAULTS:
        raise ValueError(f"is not a list of 1 to {_MAX_FAULTS} faults")
    return tuple(_read(one) for one in data)


def _read(data: Any) -> ScriptedFault:
    if not isinstance(data, list) or len(data) != len(ScriptedFault._fields):
        raise ValueError("holds something that is no fault")
    external, fault, call, share, happened = data
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in (external, fault)):
        raise ValueError("holds a name that is none")
    if call is not None and not (type(call) is int and 0 < call <= _MAX_CALL):
        raise ValueError("holds a call that is no number from 1")
    if type(share) not in (int, float) or not 0 < share <= 1:
        raise ValueError("holds a share that is not above 0 and at most 1")
    if happened is not None and type(happened) is not bool:
        raise ValueError("holds a `happened` that is not true, false or null")
    return ScriptedFault(external, fault, call, float(share), happened)
