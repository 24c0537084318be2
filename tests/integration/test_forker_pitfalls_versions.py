"""Decisions that hang on the server's version, and names and hashes that keep things apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from support.forks import made_template, seed_of

from redteam_forker import _pg, database
from redteam_forker.names import fork_name, quote_ident
from redteam_forker.role import role_statements
from redteam_forker.seeds import Preflight, preflight
from redteam_forker.template import template_hash
from redteam_sdk.errors import InternalError

if TYPE_CHECKING:
    from redteam_forker.servers import Server


@pytest.mark.parametrize("name", ["a" * 64, "ä" * 32, "a" * 63 + "b", "", "a\0b"], ids=ascii)
def test_a_name_that_postgres_would_cut_is_refused(name: str) -> None:
    # P10: bytes count, not characters, and two cut names may be one.
    with pytest.raises(InternalError):
        quote_ident(name)


def test_names_of_forks_are_far_from_the_limit_and_never_equal() -> None:
    # P10, P43
    names = {fork_name("abcd", "00" * 32) for _ in range(1000)}
    assert len(names) == 1000
    assert {len(name.encode()) for name in names} == {33}


def test_a_template_of_anything_else_has_another_hash(server: Server) -> None:
    # P13: a stale template would be found under the name of the new one.
    facts = server.facts
    seed = seed_of("CREATE TABLE t (id int);")
    hashes = [
        template_hash(seed, facts, role=None, weeks=0),
        template_hash(seed_of("CREATE TABLE t (id bigint);"), facts, role=None, weeks=0),
        template_hash(seed, facts, role="null", weeks=0),
        template_hash(seed, facts, role="app", weeks=0),
        template_hash(seed, facts, role=None, weeks=1),
        template_hash(seed, replace(facts, version_num=facts.version_num - 1), role=None, weeks=0),
        template_hash(seed, facts, role=None, weeks=0, offers=Preflight(stand_ins=("uuid-ossp",)).digest),
        template_hash(seed, facts, role=None, weeks=0, offers=Preflight(left_out=("uuid-ossp",)).digest),
        template_hash(seed, facts, role=None, weeks=0, offers=Preflight(versions=("uuid-ossp 1.1",)).digest),
        template_hash(seed, facts, role=None, weeks=0, offers=Preflight(versions=("uuid-ossp 1.2",)).digest),
    ]
    assert len(set(hashes)) == len(hashes)
    assert template_hash(seed, facts, role=None, weeks=0, offers=Preflight().digest) == hashes[0]


async def test_a_templates_hash_covers_what_the_server_has_of_its_extensions(server: Server) -> None:
    # P13: where functions stand in for an extension, the same seed becomes something else.
    for name, stood_in in (("uuid-ossp", True), ("citext", False)):
        sql = f'CREATE EXTENSION "{name}"; CREATE TABLE t (id int);'
        ready = await preflight(server, seed_of(sql))
        assert (ready.stand_ins == (name,)) is stood_in
        assert [version.split()[0] for version in ready.versions] == ([] if stood_in else [name])
        async with made_template(server, sql) as template:
            whole = template_hash(seed_of(sql), server.facts, role=None, weeks=0, offers=ready.digest)
            assert template.hash == whole != template_hash(seed_of(sql), server.facts, role=None, weeks=0)


@pytest.mark.parametrize(
    ("kind", "version_num", "size_bytes", "file_copy"),
    [
        pytest.param("embedded", 180000, 8 << 20, True, id="ours"),
        pytest.param("existing", 180000, 8 << 20, False, id="others-small"),
        pytest.param("existing", 180000, 1 << 30, True, id="others-large"),
        pytest.param("existing", 150002, 8 << 20, True, id="others-that-lose-changes"),
        pytest.param("existing", 150003, 8 << 20, False, id="others-mended"),
    ],
)
def test_a_clone_is_made_the_way_that_suits_the_server(
    server: Server, kind: str, version_num: int, size_bytes: int, file_copy: bool
) -> None:
    # P14: up to 15.2 a clone through the log can lose changes. P16: elsewhere files force checkpoints.
    facts = replace(server.facts, kind=kind, version_num=version_num)
    assert database.is_file_copy_better(facts, size_bytes) is file_copy


@pytest.mark.parametrize(
    ("kind", "version_num", "file_system", "method"),
    [
        pytest.param("embedded", 180000, "tmpfs", "clone", id="in-memory"),
        pytest.param("embedded", 180000, "ext4", None, id="on-disk"),
        pytest.param("docker", 170000, "tmpfs", None, id="before-there-was-a-choice"),  # P15
        pytest.param("existing", 180000, "tmpfs", None, id="others"),
    ],
)
def test_files_are_copied_the_way_that_suits_the_file_system(
    server: Server, kind: str, version_num: int, file_system: str, method: str | None
) -> None:
    facts = replace(server.facts, kind=kind, version_num=version_num, file_system=file_system)
    assert database.copy_method(facts) == method


@pytest.mark.parametrize(
    ("version_num", "known"),
    [
        (150000, set()),
        (160000, {"createrole_self_grant"}),
        (170000, {"createrole_self_grant", "transaction_timeout"}),
    ],
)
def test_a_session_asks_for_no_setting_that_the_server_lacks(version_num: int, known: set[str]) -> None:
    # P15: an unknown setting is an error, not a warning.
    newer = {"createrole_self_grant", "transaction_timeout", "event_triggers"}
    assert newer & _pg.admin_settings(version_num, superuser=False).keys() == known
    assert ("event_triggers" in _pg.admin_settings(version_num, superuser=True)) is (version_num >= 170000)


def test_a_fork_role_does_not_become_its_group_where_the_server_can_forbid_it() -> None:
    # P50: whoever can become a role may change its settings and its password, and that one is every fork's.
    assert [role_statements("r", group="g", version_num=version)[-1] for version in (150000, 160000)] == [
        'GRANT "g" TO "r"',
        'GRANT "g" TO "r" WITH INHERIT TRUE, SET FALSE',
    ]
