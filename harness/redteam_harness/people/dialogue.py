"""Asking a person at a terminal, or reading the answers from a pipe."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, TextIO

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["Dialogue", "check_name"]


class Dialogue:
    """One line of input per answer.

    Attributes:
        console: what the person reads.
        terminal: whether a person sits there. On a pipe an answer that is not understood ends the command,
            because those that follow it would be taken for answers to other questions.
        heard: how many lines were read.
    """

    def __init__(self, console: Console, source: TextIO | None = None, *, wants: str) -> None:
        """Begin to ask.

        Args:
            console: where questions and what they are about are printed.
            source: where answers come from; default: standard input.
            wants: what lines are expected, for the message when there is no input at all.
        """
        self._source = source or sys.stdin
        self._wants = wants
        self.console = console
        self.terminal = self._source.isatty()
        self.heard = 0

    def ask(self, prompt: str) -> str | None:
        """The next line without blanks around it, or None where the input is at its end.

        Raises:
            UsageError: there was no input from the start, and no terminal.
        """
        self.console.print(prompt, end="", markup=False, highlight=False, soft_wrap=True)
        self.console.file.flush()
        line = self._source.readline()
        if line:
            self.heard += 1
        if not line or not self.terminal:
            self.console.print()  # nobody pressed Enter
        if not line and not self.heard and not self.terminal:
            raise UsageError(
                "there is nobody to ask: standard input is empty and no terminal; run it at a terminal, "
                f"or pipe {self._wants}"
            )
        return line.strip() if line else None

    def misheard(self, line: str, expected: str) -> None:
        """Say that an answer was not understood; at a terminal the question is put again.

        Raises:
            UsageError: it came from a pipe. What was said before it is kept.
        """
        if not self.terminal:
            raise UsageError(
                f"line {self.heard} of the input, {line[:40]!r}, is no answer; expected {expected}. What "
                "came before it is kept"
            )
        self.console.print(f"expected {expected}", style="yellow", markup=False, highlight=False)


def check_name(who: str | None) -> str:
    """The name under which answers are kept: the one that was given, or this user's.

    Raises:
        UsageError: it is no name, or there is none.
    """
    if who is None:
        try:
            who = getpass.getuser()
        except (KeyError, OSError):
            raise UsageError("this user has no name here; say who you are with --who NAME") from None
    if not who.strip() or len(who) > 64 or not who.isprintable():
        raise UsageError(f"--who {who!r} is no name; give one of 1 to 64 printable characters")
    return who.strip()
