"""What the doctor advises and prints, from facts alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redteam_forker.doctor import Diagnosis, Programs, Rights, Room, Storage, advice, what_rights_lack
from redteam_forker.errors import ServerUnavailable
from redteam_forker.probe import ForkCost
from redteam_forker.servers import ServerFacts
from redteam_harness.cli.doctoring import sections

FACTS = ServerFacts(
    kind="existing",
    version="18.1",
    version_num=180001,
    host="db",
    port=5432,
    instance="abcd",
    superuser=True,
    placement="",
    connections=300,
    clone=True,
)
HEALTHY = Diagnosis(
    facts=FACTS,
    rights=Rights(role="me", superuser=True, createdb=True, createrole=True),
    storage=Storage(directory="/data", file_system="xfs", clones=True, free_bytes=64 << 30),
    room=Room(sessions=300, sessions_used=2, conversations=58, forks=4096),
    settings={"fsync": "off", "shared_buffers": "16384"},
    cost=ForkCost(
        template_bytes=1 << 30,
        template_s=8.2,
        fork_s=0.035,
        first_answer_s=0.041,
        drop_s=0.02,
        disk_bytes=1 << 20,
        rounds=5,
    ),
    unmeasured=None,
)
COPIES = replace(
    HEALTHY,
    facts=replace(FACTS, clone=False),
    storage=replace(HEALTHY.storage, file_system="ext4", clones=False),
    cost=replace(HEALTHY.cost, fork_s=1.2),  # type: ignore[type-var]
)
PROGRAMS = Programs(version="18.6", directory="/wheel/bin", user="postgres")


def test_a_server_that_clones_files_and_does_not_flush_needs_no_advice() -> None:
    assert advice(HEALTHY) == ()


@pytest.mark.parametrize(
    ("found", "said"),
    [
        pytest.param(COPIES, "on ext4, which copies (1.2 s for each GB of template)", id="ext4"),
        pytest.param(
            replace(COPIES, storage=replace(COPIES.storage, file_system="xfs")),
            "the data lies on xfs: set file_copy_method = clone",
            id="xfs that is not used",
        ),
        pytest.param(
            replace(COPIES, facts=replace(COPIES.facts, kind="embedded")),
            "with such a file system at /var/tmp it is chosen by itself",
            id="our own server",
        ),
        pytest.param(
            replace(COPIES, storage=replace(COPIES.storage, file_system=None), cost=None),
            "where files are copied; on XFS (reflink=1) or Btrfs",
            id="a place that cannot be seen",
        ),
        pytest.param(
            replace(COPIES, facts=replace(COPIES.facts, version="17.6", version_num=170006)),
            "PostgreSQL 17.6 copies every byte of the template; 18 can clone",
            id="17",
        ),
        pytest.param(replace(HEALTHY, settings={"fsync": "on"}), "set fsync = off", id="flushing"),
        pytest.param(
            replace(HEALTHY, settings={"shared_buffers": "1048576"}),
            "shared_buffers is 8192 MB",
            id="buffers",
        ),
        pytest.param(
            replace(HEALTHY, room=replace(HEALTHY.room, sessions=97, conversations=15)),
            "97 sessions carry 15 conversations at once, 5 for each and some of our own: raise max_conn",
            id="sessions",
        ),
    ],
)
def test_what_makes_forks_dear_is_named_with_its_remedy(found: Diagnosis, said: str) -> None:
    [sentence] = advice(found)
    assert said in sentence


def test_a_cheap_fork_needs_no_other_file_system() -> None:
    assert advice(replace(COPIES, cost=HEALTHY.cost)) == ()


def test_a_role_without_superuser_is_told_what_that_costs() -> None:
    rights = replace(HEALTHY.rights, superuser=False)
    lacking = what_rights_lack(rights)
    assert lacking is not None
    assert "gives tables to other owners" in lacking
    shown = sections(PROGRAMS, replace(HEALTHY, rights=rights), has_key=True)
    assert [line.mark for line in shown["Rights"]] == ["good", "note"]


def test_all_is_well_in_every_line_of_a_healthy_server() -> None:
    shown = sections(PROGRAMS, HEALTHY, has_key=True)
    assert {line.mark for lines in shown.values() for line in lines} == {"good"}


def test_a_server_that_cannot_be_used_and_missing_programs_are_marked_so() -> None:
    fault = ServerUnavailable("nobody is there")
    shown = sections(fault, fault, has_key=False)
    assert [(line.mark, line.about) for lines in shown.values() for line in lines] == [
        ("good", "redteam"),
        ("bad", "programs"),
        ("note", "model"),
        ("bad", "server"),
    ]


def test_a_full_disk_is_shown_as_what_it_is() -> None:
    full = replace(
        HEALTHY,
        cost=None,
        unmeasured="a template, its baseline and a fork need 48 MB, and 3 MB are free",
        room=replace(HEALTHY.room, forks=0, conversations=0),
    )
    shown = sections(PROGRAMS, full, has_key=True)
    assert [line.mark for line in shown["Limits"]] == ["bad", "bad"]
    assert "3 MB are free" in shown["A fork"][0].text
