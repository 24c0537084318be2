from __future__ import annotations

import subprocess
import sys

import pytest

from redteam_rubrics import wilson
from redteam_sdk.errors import InternalError


# Newcombe, Statistics in Medicine 17 (1998), 857-872, table I, method 3.
@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_intervals(passed: int, n: int, low: float, high: float) -> None:
    interval = wilson(passed, n)
    assert interval is not None
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


def test_a_higher_confidence_widens_the_interval() -> None:
    usual, wide = wilson(14, 20), wilson(14, 20, confidence=0.99)
    assert usual is not None
    assert wide is not None
    assert wide.low < usual.low < usual.high < wide.high


def test_nothing_counted_has_no_interval() -> None:
    assert wilson(0, 0) is None


@pytest.mark.parametrize(("passed", "n"), [(3, 2), (-1, 2)])
def test_an_impossible_rate_is_refused(passed: int, n: int) -> None:
    with pytest.raises(InternalError):
        wilson(passed, n)


def test_importing_the_room_does_not_import_scipy() -> None:
    code = "import redteam_rubrics, sys; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
