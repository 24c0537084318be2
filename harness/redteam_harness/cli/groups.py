"""Groups of commands with one that is meant where none is named.

`redteam personas SUITE` is `redteam personas show SUITE`.
"""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

__all__ = ["DefaultGroup"]

_HELP = frozenset({"-h", "--help"})


class DefaultGroup(TyperGroup):
    """Takes its first command where the first argument names none of them.

    `--help` on its own lists the commands, as in any other group, and says which one is the first.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        first = next(iter(self.commands), None)
        if first is not None:
            self.epilog = f"Without COMMAND, {first} is meant: {first} --help explains its arguments."

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the first command's name before arguments that begin with no command's name."""
        if not args or (args[0] not in self.commands and args[0] not in _HELP):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)
