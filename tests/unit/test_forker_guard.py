"""Which roles hold more of a server's locks than one fork may."""

from __future__ import annotations

import asyncpg
import pytest

from redteam_forker.errors import DropFailed
from redteam_forker.guard import is_out_of_locks, over_their_share


@pytest.mark.parametrize(
    ("held", "over"),
    [
        pytest.param({}, [], id="nobody"),
        pytest.param({1: 5, 2: 400}, [], id="less-than-half"),
        pytest.param({1: 5, 2: 501}, [2], id="more-than-half"),
        pytest.param({1: 450, 2: 450}, [], id="two-that-leave-room"),
        pytest.param({1: 450, 2: 500, 3: 62}, [2, 1], id="full-by-two-the-worst-first"),
        pytest.param(dict.fromkeys(range(20), 60), [], id="full-by-many-and-nobody-is-to-blame"),
    ],
)
def test_who_holds_half_of_the_locks_or_a_sixteenth_when_there_are_none_left(
    held: dict[int, int], over: list[int]
) -> None:
    assert over_their_share(held, capacity=1000) == over


def test_want_of_a_lock_is_known_by_what_caused_an_error() -> None:
    error = DropFailed("cannot drop it")
    error.__cause__ = asyncpg.OutOfMemoryError("out of shared memory")
    assert is_out_of_locks(error)
    assert not is_out_of_locks(DropFailed("cannot drop it"))
