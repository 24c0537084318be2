"""The statistics over verdicts: rates with intervals, pass^k, comparisons of pairs, families of questions.

docs/statistics.md explains every figure to its reader. scipy is imported inside functions, where it is used:
it costs half a second at start.
"""

from __future__ import annotations

from redteam_rubrics.statistics.bootstrap import cluster_bootstrap
from redteam_rubrics.statistics.families import bonferroni, holm, simultaneous
from redteam_rubrics.statistics.intervals import Cluster, Interval, clustered, wilson
from redteam_rubrics.statistics.pairs import Difference, McNemar, Pairs, mcnemar, paired_difference
from redteam_rubrics.statistics.rate import Bounds, Rate, interval_data, method_of, percent, rate_of
from redteam_rubrics.statistics.reliability import PassHatK, Task, pass_hat_k

__all__ = [
    "Bounds",
    "Cluster",
    "Difference",
    "Interval",
    "McNemar",
    "Pairs",
    "PassHatK",
    "Rate",
    "Task",
    "bonferroni",
    "cluster_bootstrap",
    "clustered",
    "holm",
    "interval_data",
    "mcnemar",
    "method_of",
    "paired_difference",
    "pass_hat_k",
    "percent",
    "rate_of",
    "simultaneous",
    "wilson",
]
