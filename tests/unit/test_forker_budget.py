"""What a launch may use is computed before it starts; a refusal says how many conversations fit."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from redteam_forker.budget import Budget, fork_cost_bytes, plan_budget
from redteam_forker.servers import ServerFacts
from redteam_sdk.errors import UsageError

_MIB = 1 << 20
_FACTS = ServerFacts(
    kind="embedded",
    version="18.6",
    version_num=180006,
    host="/run/x",
    port=5432,
    instance="abcd",
    superuser=True,
    placement="somewhere",
    connections=120,
    clone=False,
    file_system="ext4",
)


def test_budget_has_room_for_conversations_and_warm_forks() -> None:
    assert plan_budget(
        _FACTS, parallel=4, warm=3, template_bytes=92 * _MIB, free_bytes=10_000 * _MIB
    ) == Budget(
        parallel=4,
        low=2,
        high=3,
        sessions=40,
        fork_bytes=100 * _MIB,
        needed_bytes=700 * _MIB,
        free_bytes=10_000 * _MIB,
    )


def test_too_few_sessions_are_refused_with_how_many_fit() -> None:  # P23
    with pytest.raises(
        UsageError, match=r"--parallel 21 needs up to 125 sessions.* admits 120: 20 fit, so use"
    ):
        plan_budget(_FACTS, parallel=21, warm=2, template_bytes=_MIB, free_bytes=None)


def test_sessions_of_other_launches_count() -> None:
    with pytest.raises(UsageError, match=r"of which 10 forks of other launches may take 50: 10 fit"):
        plan_budget(_FACTS, parallel=11, warm=0, template_bytes=_MIB, free_bytes=None, others=10)


def test_too_little_disk_is_refused_with_how_many_fit_and_what_is_cheaper() -> None:  # P21, P22
    with pytest.raises(UsageError, match=r"needs 1000 MB of disk .* 7 fit, so use --parallel 7.*XFS"):
        plan_budget(_FACTS, parallel=10, warm=0, template_bytes=92 * _MIB, free_bytes=1000 * _MIB)


def test_in_memory_it_is_memory_that_is_short() -> None:
    facts = replace(_FACTS, file_system="tmpfs")
    with pytest.raises(UsageError, match=r"MB of memory for forks .* not one fits"):
        plan_budget(facts, parallel=1, warm=0, template_bytes=4096 * _MIB, free_bytes=2048 * _MIB)


def test_clones_that_share_blocks_cost_little() -> None:  # P94
    facts = replace(_FACTS, clone=True, file_system="xfs")
    assert fork_cost_bytes(facts, 1024 * _MIB) == fork_cost_bytes(facts, 8 * _MIB) < 16 * _MIB
    assert (
        plan_budget(facts, parallel=20, warm=4, template_bytes=1024 * _MIB, free_bytes=1024 * _MIB).high == 4
    )


def test_warm_forks_make_way_where_room_is_short() -> None:
    budget = plan_budget(_FACTS, parallel=6, warm=4, template_bytes=92 * _MIB, free_bytes=1000 * _MIB)
    assert (budget.parallel, budget.low, budget.high) == (6, 1, 1)


def test_room_that_is_not_known_is_not_considered() -> None:
    budget = plan_budget(_FACTS, parallel=4, warm=2, template_bytes=10**15, free_bytes=None)
    assert (budget.high, budget.free_bytes) == (2, None)


@pytest.mark.parametrize(("parallel", "warm"), [(0, 1), (1, -1)])
def test_numbers_that_mean_nothing_are_refused(parallel: int, warm: int) -> None:
    with pytest.raises(UsageError, match="at least one conversation"):
        plan_budget(_FACTS, parallel=parallel, warm=warm, template_bytes=1, free_bytes=None)


@given(
    parallel=st.integers(1, 500),
    warm=st.integers(0, 50),
    template_mib=st.integers(1, 4096),
    free_mib=st.integers(0, 100_000),
    connections=st.integers(20, 1000),
    clone=st.booleans(),
)
def test_what_a_refusal_says_fits_does_fit_and_one_more_does_not(
    parallel: int, warm: int, template_mib: int, free_mib: int, connections: int, clone: bool
) -> None:
    facts = replace(_FACTS, connections=connections, clone=clone)

    def plan(count: int) -> Budget:
        return plan_budget(
            facts, parallel=count, warm=warm, template_bytes=template_mib * _MIB, free_bytes=free_mib * _MIB
        )

    try:
        budget = plan(parallel)
    except UsageError as refused:
        found = re.search(r"use --parallel (\d+)", str(refused))
        fit = int(found[1]) if found else 0
        event("refused")
    else:
        assert budget.needed_bytes <= free_mib * _MIB
        assert budget.sessions <= connections
        assert 0 <= budget.low <= budget.high <= warm
        return
    assert fit < parallel
    with pytest.raises(UsageError):
        plan(fit + 1)
    if fit:
        # What is said fits but for the other limit, which is looked at second.
        with contextlib.suppress(UsageError):
            assert plan(fit).parallel == fit
