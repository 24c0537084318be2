"""For mocks of external tools: state of their own for each conversation, and the faults that they play.

```python
bank = per_conversation(FakeBank)              # one FakeBank for each conversation, gone at its end

@external(mock=bank.charge)
async def charge_card(card: str, cents: int) -> str: ...

@external(mock=bank.refund)
async def refund_card(charge: str) -> None: ...
```
"""

from __future__ import annotations

import functools
import inspect
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from redteam_sdk.context import current
from redteam_sdk.lifetimes import Fork, enter, hold

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Bounced", "Duplicate", "PerConversation", "per_conversation"]

T = TypeVar("T")


class Duplicate(Exception):
    """The scripted fault `duplicate`: the system outside says that it has had this request before."""


class Bounced(Exception):
    """The scripted fault `bounce`: the system outside took the request and could not deliver it."""


class PerConversation(Generic[T]):
    """Something for each conversation: made when it is first asked for, dropped when the conversation ends.

    Its attributes are functions that call the method of that name of the bound conversation's own. Nothing is
    shared between conversations, nor between processes that serve the same one.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[Fork, T] = {}
        self._making = threading.Lock()  # so that two threads of a conversation do not make two
        hold(self)

    def here(self) -> T:
        """That of the conversation that is bound here.

        Raises:
            NoContext: none is, or it is over.
        """
        fork = enter(current())
        with self._making:
            if fork not in self._made:
                self._made[fork] = self._make()
            return self._made[fork]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call that of the bound conversation itself, where it is a function."""
        made: Any = self.here()
        return made(*args, **kwargs)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        # Where a class is given, a wrong name shows itself where the mark is made, not at the first call.
        known = getattr(self._make, name) if isinstance(self._make, type) else None

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(self.here(), name)(*args, **kwargs)

        if inspect.iscoroutinefunction(known):

            async def call_async(*args: Any, **kwargs: Any) -> Any:
                return await getattr(self.here(), name)(*args, **kwargs)

            return functools.wraps(known)(call_async)
        return functools.wraps(known)(call) if callable(known) else call

    async def close_fork(self, fork: Fork) -> None:
        """The conversation is over."""
        self.drop_fork(fork)

    def drop_fork(self, fork: Fork) -> None:
        """The conversation is over."""
        self._made.pop(fork, None)


def per_conversation(make: Callable[[], T]) -> PerConversation[T]:
    """Have a stateful mock made anew for each conversation.

    Args:
        make: a class, or a function that makes one; called without arguments, at the first call.
    """
    return PerConversation(make)
