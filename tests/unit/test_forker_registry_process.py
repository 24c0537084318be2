"""A process is proven dead only where that can be known; then nothing has to be waited for."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from redteam_forker.launcher import is_proven_dead, own_process


def test_own_process_is_alive() -> None:
    assert not is_proven_dead(own_process())


def test_process_that_ended_is_dead_even_before_it_is_buried() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as other:
        start = _start_of(other.pid)
        process = replace(own_process(), pid=other.pid, started=start)
        assert not is_proven_dead(process)
        other.kill()
        _wait_for_state(other.pid, "Z")
        assert is_proven_dead(process)
    assert is_proven_dead(process)


@pytest.mark.parametrize(
    ("field", "value", "dead"),
    [
        pytest.param("started", "1", True, id="another-process-has-its-number-now"),
        pytest.param("place", "another-boot:4026531836", False, id="another-machine-or-boot"),
        pytest.param("place", "", False, id="place-is-not-known"),
        pytest.param("started", "", False, id="start-is-not-known"),
    ],
)
def test_what_is_not_known_proves_nothing(field: str, value: str, dead: bool) -> None:
    changed: dict[str, Any] = {field: value}
    assert is_proven_dead(replace(own_process(), **changed)) is dead


def _stat(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()


def _start_of(pid: int) -> str:
    return _stat(pid)[19]


def _wait_for_state(pid: int, state: str) -> None:
    while _stat(pid)[0] != state:
        pass
