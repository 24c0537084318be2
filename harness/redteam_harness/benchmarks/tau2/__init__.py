"""tau2-bench's retail domain: tasks with gold actions, and the hash of the end state that each leads to.

read_benchmark ─► write_seed ─► template ─► run_benchmark: a fork for each task, its gold actions, a hash
─► write_suite: the tasks as a suite, with the change sets that these and their alternatives left as rubric
"""

from __future__ import annotations

from redteam_harness.benchmarks.tau2.alternatives import Alternative
from redteam_harness.benchmarks.tau2.data import Benchmark, Task, read_benchmark
from redteam_harness.benchmarks.tau2.outcome import AlternativeRun, Attempt, Benched, Refused, TaskRun
from redteam_harness.benchmarks.tau2.run import BenchOptions, run_benchmark
from redteam_harness.benchmarks.tau2.suite import REFERENCE_AGENTS, ReferenceAgent, check_new, write_suite

__all__ = [
    "REFERENCE_AGENTS",
    "Alternative",
    "AlternativeRun",
    "Attempt",
    "BenchOptions",
    "Benched",
    "Benchmark",
    "ReferenceAgent",
    "Refused",
    "Task",
    "TaskRun",
    "check_new",
    "read_benchmark",
    "run_benchmark",
    "write_suite",
]
