"""The process that one function of a suite runs in. Started by its path: it imports nothing of ours.

One line comes in, a request; one line goes out, what the function returned or how it failed. What the
function prints goes nowhere. Afterwards the process waits until it is ended.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Serve the one request."""
    request = json.loads(sys.stdin.buffer.readline())
    # For when whoever started us is gone and cannot end us.
    signal.alarm(int(request["timeout_s"]) + 5)
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.path.insert(0, request["folder"])
    try:
        said = json.dumps({"answer": _call(request)}, allow_nan=False)
    except BaseException as error:  # noqa: BLE001  # sys.exit is an answer as well
        said = json.dumps({"error": _told(error)})
    left = said.encode("ascii") + b"\n"
    while left:
        left = left[os.write(answers, left) :]
    os.read(requests, 1)
    os._exit(0)


def _call(request: dict[str, Any]) -> object:
    function = getattr(importlib.import_module(request["module"]), request["function"])
    returned = function(request["evidence"])
    return asyncio.run(_awaited(returned)) if inspect.isawaitable(returned) else returned


async def _awaited(returned: Any) -> object:
    return await returned


def _told(error: BaseException) -> str:
    name = type(error).__name__
    place = ""
    frame = error.__traceback__
    while frame is not None:
        path = frame.tb_frame.f_code.co_filename
        if path.startswith(os.getcwd() + os.sep):
            place = f" ({os.path.relpath(path)}:{frame.tb_lineno})"
        frame = frame.tb_next
    return f"{name}: {error}{place}" if str(error) else f"{name}{place}"


if __name__ == "__main__":
    main()
