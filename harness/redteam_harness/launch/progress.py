"""What a person sees while a launch runs: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redteam_harness.report.summary import FAULTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from redteam_harness.launch.plan import Planned
    from redteam_harness.report.summary import Finished

__all__ = ["Progress"]

_FEW = 20
_REFRESH_PER_S = 8
_LONG_WAIT_S = 10.0  # without a live picture, a wait of so long is worth a line


@dataclass(slots=True)
class _Active:
    planned: Planned
    turn: int = 0
    doing: str = "waiting for a fork"
    wait: str = ""
    wait_until: float = 0.0

    @property
    def told(self) -> str:
        """What it is at, and what holds it up: `429, 3rd try, 12 s`."""
        if not self.wait:
            return self.doing
        left = math.ceil(self.wait_until - time.monotonic())
        return f"{self.doing}: {self.wait}" + (f", {left} s" if left > 0 else "")


@dataclass(slots=True)
class Progress:
    """Counts what a launch does, and shows it.

    Attributes:
        console: where to; `live` is off where it is no terminal.
        suite: the suite's name.
        live: whether to draw a live picture; else a line per finished conversation.
        quiet: whether to show nothing at all.
    """

    console: Console
    suite: str
    live: bool
    quiet: bool = False
    planned: int = 0
    forks_alive: int = 0
    forks_made: int = 0
    outcomes: dict[str, int] = field(default_factory=dict)
    _active: dict[str, _Active] = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)

    @contextmanager
    def showing(self, planned: int) -> Iterator[None]:
        """Show the conversations of a launch while the context is open."""
        self.planned = planned
        self._started = time.monotonic()
        if not self.live or self.quiet:
            yield
            return
        with Live(
            get_renderable=self._render,
            console=self.console,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        ):
            yield
        self.console.print(self._head())

    def say(self, text: str) -> None:
        """Tell what is being prepared."""
        if not self.quiet:
            self.console.print(escape(text), style="dim", highlight=False, soft_wrap=True)

    def started(self, planned: Planned) -> None:
        """A conversation begins."""
        self._active[planned.id] = _Active(planned)

    def fork_made(self) -> None:
        """A fork came to life."""
        self.forks_alive += 1
        self.forks_made += 1

    def fork_gone(self) -> None:
        """A fork was dropped, or is kept and no longer ours to count."""
        self.forks_alive -= 1

    def doing(self, conversation: str, turn: int, doing: str) -> None:
        """What a conversation is at."""
        active = self._active.get(conversation)
        if active is not None:
            active.turn, active.doing = turn, doing

    def waiting(self, conversation: str, what: str, seconds: float) -> None:
        """What a conversation waits for, and for how long at least, in seconds; with "" it waits no more."""
        active = self._active.get(conversation)
        if active is None:
            return
        is_new = what != active.wait
        active.wait, active.wait_until = what, time.monotonic() + seconds
        if is_new and seconds >= _LONG_WAIT_S and not self.live and not self.quiet:
            self.console.print(
                f"waiting {conversation} turn {active.turn}, {active.told}",
                style="dim",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def finished(self, one: Finished) -> None:
        """A conversation has its outcome."""
        self._active.pop(one.id, None)
        self.outcomes[one.outcome] = self.outcomes.get(one.outcome, 0) + 1
        if not self.live and not self.quiet:
            broken = ", ".join(str(verdict["rule"]) for verdict in one.broken)
            why = f"  {broken}" if broken else (f"  {one.cause}: {one.message}" if one.cause else "")
            self.console.print(
                f"{self._done():>4}/{self.planned} {one.outcome:<11} {one.id} {one.case} · "
                f"persona {one.persona} · {one.disposition}{why}",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def kept(self, one: Finished) -> None:
        """A conversation had its outcome in an earlier launch of the run."""
        self.outcomes[one.outcome] = self.outcomes.get(one.outcome, 0) + 1

    def abandoned(self, conversation: str) -> None:
        """A conversation was given up without an outcome."""
        self._active.pop(conversation, None)

    def _done(self) -> int:
        return sum(self.outcomes.values())

    def _render(self) -> RenderableType:
        if len(self._active) > _FEW:
            return self._head()
        lines = Table.grid(padding=(0, 2))
        for active in self._active.values():
            planned = active.planned
            lines.add_row(
                Text(f"  {planned.id}", style="dim"),
                Text(f"{planned.case} · {planned.persona.key} · {planned.disposition}"),
                Text(f"turn {active.turn}" if active.turn else "", style="dim"),
                Text(active.told, style="dim"),
            )
        return Group(self._head(), lines)

    def _head(self) -> RenderableType:
        done = self._done()
        elapsed = int(time.monotonic() - self._started)
        faults = sum(count for outcome, count in self.outcomes.items() if outcome in FAULTS)
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self.suite, style="bold"),
            Text(f"{self.planned} conversations"),
            Text(f"{self.forks_alive} forks alive" if self._active else f"{self.forks_made} forks"),
            ProgressBar(total=max(self.planned, 1), completed=done, width=20),
            Text(f"{done}/{self.planned}"),
            Text(f"{elapsed // 60}:{elapsed % 60:02}"),
            Text(f"{self.outcomes.get('pass', 0)} passed", style="green"),
            Text(f"{self.outcomes.get('fail', 0)} failed", style="red"),
            Text(f"{faults} faults", style="yellow") if faults else Text(""),
            Text(f"{len(self._active)} running", style="dim") if self._active else Text(""),
        )
        return head
