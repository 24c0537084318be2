"""Runs a suite's own function in a process of its own: it can neither stop a launch nor change evidence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio

from redteam_rubrics.errors import RuleError
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anyio.abc import Process

__all__ = ["TARGET", "Functions", "Target", "target"]

_CHILD = Path(__file__).with_name("child.py")
TARGET = r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)"
"""`module:function` as a regular expression."""

_MOST = 1_000_000
# No more than a program needs to start: what is in our environment (keys, passwords) is none of its business.
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


class Target(NamedTuple):
    """A function, by its module and its name."""

    module: str
    function: str


def target(written: str) -> Target:
    """Read `checks.refunds:one_per_order`.

    Raises:
        UsageError: it is not written so.
    """
    found = re.fullmatch(TARGET, written, re.ASCII)
    if found is None:
        raise UsageError(f"expected module:function, as in checks:refund_is_owed; found {written!r}")
    return Target(*found.groups())


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """Where the functions of `python` rules come from, and how long each may take.

    Attributes:
        folder: the suite's; modules are imported from there, and functions run there.
        timeout_s: a function that takes longer, the import of its module included, is ended.
    """

    folder: Path
    timeout_s: float = 30

    def digest(self, written: str) -> str | None:
        """SHA-256, in hexadecimal, of the function's module as it is now; None: there is no such file here.

        What the module imports is not part of it.

        Raises:
            OSError: the file cannot be read.
        """
        path = self.folder.joinpath(*target(written).module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return hashlib.sha256(file.read_bytes()).hexdigest()
        return None

    async def call(self, written: str, evidence: Mapping[str, Any]) -> Any:
        """What the function returns for the evidence, as JSON-like data.

        Raises:
            RuleError: there is no such function; it raised, exited, took too long, or returned what has no
                JSON form.
        """
        module, function = target(written)
        request = {
            "folder": str(self.folder.absolute()),
            "module": module,
            "function": function,
            "evidence": evidence,
            "timeout_s": self.timeout_s,
        }
        # Not a path of ours in front, where `tools` or `sql` would be found before the suite's.
        command = [sys.executable, "-P", str(_CHILD)]
        try:
            process = await anyio.open_process(
                command, stderr=DEVNULL, cwd=self.folder, env=_ENVIRONMENT, start_new_session=True
            )
        except OSError as error:
            raise RuleError(f"{written} cannot be run: {error.strerror}") from error
        answer = b""
        try:
            with anyio.move_on_after(self.timeout_s) as deadline:
                answer = await _ask(process, json.dumps(request).encode())
        finally:
            with anyio.CancelScope(shield=True):
                await _end(process)
        if deadline.cancelled_caught:
            raise RuleError(f"{written} took longer than {self.timeout_s:g} s")
        if not answer.endswith(b"\n"):
            what = f"answered with more than {_MOST:,} bytes" if len(answer) > _MOST else "ended"
            raise RuleError(f"{written} {what} without returning")
        said = json.loads(answer)
        if "error" in said:
            raise RuleError(f"{written}: {said['error']}")
        return said["answer"]


async def _ask(process: Process, request: bytes) -> bytes:
    """Write the request and read the line of the answer, or whatever comes before the end."""
    assert process.stdin is not None
    assert process.stdout is not None
    answer = b""
    # A child that is gone, or never reads, says so by what it does not answer.
    with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream):
        await process.stdin.send(request + b"\n")
        while not answer.endswith(b"\n") and len(answer) <= _MOST:
            answer += await process.stdout.receive()
    return answer


async def _end(process: Process) -> None:
    """End the process with all that it started. It waits to be ended, so its id is still its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.aclose()
