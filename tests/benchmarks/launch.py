"""Conversations per second of a whole offline launch of the clinic: `python tests/benchmarks/launch.py`.

Runs `redteam launch seeds/clinic --count N --parallel P` as a process of its own, several times, and prints a
table with the machine. Times are from the launch's own report (first conversation's start to last one's end)
and of the whole process (server start, seed and report included).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REDTEAM = Path(sys.executable).with_name("redteam")


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--parallel", type=int, default=20)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(f"{datetime.now(UTC):%Y-%m-%d}  {_machine()}")
    print(f"{options.count} conversations, --parallel {options.parallel}, offline, {options.runs} runs")
    print(f"{'run':>4} {'held (s)':>9} {'per second':>11} {'whole process (s)':>18} {'outcomes'}")
    rates = []
    for run in range(1, options.runs + 1):
        report, whole_s = _launch(options.count, options.parallel)
        if sum(report["outcomes"].values()) != options.count:
            raise SystemExit(f"only {report['finished']} of {options.count} have an outcome")
        rates.append(options.count / report["seconds"])
        outcomes = " ".join(f"{outcome} {count}" for outcome, count in report["outcomes"].items())
        print(f"{run:>4} {report['seconds']:>9.2f} {rates[-1]:>11.1f} {whole_s:>18.2f} {outcomes}")
    print(f"median {statistics.median(rates):.1f} conversations per second")


def _launch(count: int, parallel: int) -> tuple[dict, float]:  # type: ignore[type-arg]
    with tempfile.TemporaryDirectory() as out:
        command = [str(REDTEAM), "launch", str(ROOT / "seeds/clinic")]
        command += ["--count", str(count), "--parallel", str(parallel)]
        start = time.monotonic()
        done = subprocess.run(
            [*command, "--offline", "--json", "--out", out], capture_output=True, text=True, check=False
        )
        whole_s = time.monotonic() - start
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    return json.loads(done.stdout), whole_s


def _machine() -> str:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores ({cpu}), {memory_gib:.0f} GiB, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
