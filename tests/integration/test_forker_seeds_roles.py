"""Roles belong to the whole server: no seed leaves one with more rights than it may have."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

import pytest
from support.databases import connected, scratch_database
from support.forks import TODAY
from support.seeds import loading, roles_for, seed_of

from redteam_forker.errors import SeedError
from redteam_forker.seeds import load
from redteam_forker.template import build_template, drop_template

if TYPE_CHECKING:
    import asyncpg

    from redteam_forker.servers import Server

_RIGHTS = """
    SELECT array_remove(ARRAY[
        CASE WHEN rolsuper THEN 'super' END, CASE WHEN rolcreaterole THEN 'createrole' END,
        CASE WHEN rolcreatedb THEN 'createdb' END, CASE WHEN rolreplication THEN 'replication' END,
        CASE WHEN rolbypassrls THEN 'bypassrls' END, CASE WHEN rolcanlogin THEN 'login' END], NULL)
    FROM pg_roles WHERE rolname = $1
"""


def new_name() -> str:
    return f"seed_role_{secrets.token_hex(6)}"


async def members(admin: asyncpg.Connection, role: str) -> list[str]:
    rows = await admin.fetch(
        "SELECT m.rolname::text AS name FROM pg_auth_members a JOIN pg_roles m ON m.oid = a.member "
        "WHERE a.roleid = to_regrole($1) ORDER BY 1",
        role,
    )
    return [row["name"] for row in rows]


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param("CREATE ROLE {r} SUPERUSER LOGIN PASSWORD 'x';", id="create"),
        pytest.param("CREATE ROLE {r}; ALTER ROLE {r} WITH SUPERUSER CREATEDB;", id="alter"),
        pytest.param("CREATE USER {r} IN ROLE pg_execute_server_program REPLICATION;", id="in-role"),
        pytest.param("CREATE ROLE {r}; GRANT pg_write_server_files TO {r};", id="grant-predefined"),
        pytest.param("CREATE ROLE {r}; GRANT {admin} TO {r};", id="grant-superuser"),
        pytest.param("CREATE ROLE {r}; GRANT {r} TO {admin};", id="grant-to-an-account"),
    ],
)
async def test_a_role_of_a_template_has_no_right_past_it(server: Server, statements: str) -> None:
    role = new_name()
    async with connected(server) as admin:
        user = await admin.fetchval("SELECT current_user")
        script = (
            f"{statements.format(r=role, admin=user)} CREATE TABLE t (a int); ALTER TABLE t OWNER TO {role};"
        )
        template = await build_template(server, seed_of(script), role=None, today=TODAY)
        try:
            assert await admin.fetchval(_RIGHTS, role) == []
            for other in ("pg_execute_server_program", "pg_write_server_files", user):
                assert role not in await members(admin, other)
            assert await members(admin, role) == []
        finally:
            await drop_template(server, template)
        assert await admin.fetchval(_RIGHTS, role) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(
            "EXECUTE concat('CREATE ROLE {r} SUPER', 'USER LOGIN')",
            "became SUPERUSER while the seed was loaded; that was taken back",
            id="create",
        ),
        pytest.param(
            "EXECUTE concat('GRANT pg_read', '_server_files TO {r}')",
            "the seed granted pg_read_server_files to {r}",
            id="grant",
        ),
        pytest.param(
            "EXECUTE concat('ALTER ROLE {r} BYPASS', 'RLS LOGIN'); COMMIT; PERFORM 1/0",
            "division by zero",
            id="and-fail",
        ),
    ],
)
async def test_rights_that_code_gives_are_taken_back_and_the_seed_is_refused(
    server: Server, body: str, words: str
) -> None:
    role = new_name()
    first = "" if "CREATE" in body else f"CREATE ROLE {role};"
    seed = seed_of(f"{first} CREATE TABLE t (a int); DO $$ BEGIN {body.format(r=role)}; END $$;")
    async with connected(server) as admin:
        try:
            async with roles_for(server, seed), scratch_database(server) as database:
                with pytest.raises(SeedError) as refusal:
                    await load(server, database, seed)
                assert words.format(r=role) in str(refusal.value)
                assert await admin.fetchval(_RIGHTS, role) == []
                assert role not in await members(admin, "pg_read_server_files")
        finally:
            await admin.execute(f"DROP ROLE IF EXISTS {role}")


async def test_a_role_that_code_makes_cannot_log_in_and_is_told(server: Server) -> None:
    role = new_name()
    body = f"EXECUTE 'CREATE ROLE ' || '{role}' || ' LOGIN'"
    seed = seed_of(f"CREATE TABLE t (a int); DO $$ BEGIN {body}; END $$;")
    async with connected(server) as admin:
        try:
            async with loading(server, seed) as (_, facts):
                assert facts.roles == (role,)
                assert await admin.fetchval(_RIGHTS, role) == []
        finally:
            await admin.execute(f"DROP ROLE IF EXISTS {role}")


async def test_memberships_among_the_seeds_own_roles_are_kept(server: Server) -> None:
    one, two, three = new_name(), new_name(), new_name()
    seed = seed_of(
        f"CREATE ROLE {one};\nCREATE ROLE {two} IN ROLE {one};\nCREATE ROLE {three};\n"
        f"GRANT {two} TO {three} WITH ADMIN OPTION;\nCREATE TABLE t (a int);"
    )
    async with loading(server, seed) as (_, facts), connected(server) as admin:
        assert await members(admin, one) == [two]
        assert await members(admin, two) == [three]
        admins = "SELECT bool_or(admin_option) FROM pg_auth_members WHERE roleid = to_regrole($1)"
        assert not await admin.fetchval(admins, two)
        assert facts.set_aside == (
            f"1.sql:1: CREATE ROLE {one}",
            f"1.sql:2: CREATE ROLE {two}",
            f"1.sql:3: CREATE ROLE {three}",
        )


async def test_an_account_of_the_server_is_not_changed(server: Server) -> None:
    account, role = new_name(), new_name()
    seed = seed_of(
        f"ALTER ROLE {account} NOLOGIN; CREATE ROLE {role}; DROP ROLE {account};"
        f"GRANT {role} TO {account}; GRANT {account} TO {role};"
        f"ALTER ROLE {account} SET work_mem = '1MB'; CREATE TABLE t (a int);"
    )
    async with connected(server) as admin:
        await admin.execute(f"CREATE ROLE {account} LOGIN")
        try:
            async with loading(server, seed) as (_, facts):
                assert await admin.fetchval(_RIGHTS, account) == ["login"]
                assert await members(admin, role) == await members(admin, account) == []
                reason = f"not given: {account} is an account of this server)"
                assert [line.partition("(")[2] for line in facts.set_aside[-2:]] == [reason] * 2
                everywhere = (
                    "SELECT FROM pg_db_role_setting WHERE setdatabase = 0 AND setrole = to_regrole($1)"
                )
                assert not await admin.fetch(everywhere, account)
        finally:
            await admin.execute(f"DROP ROLE {account}")


async def test_a_seed_with_its_own_roles_loads_again_and_again(server: Server) -> None:
    role = new_name()
    seed = seed_of(
        f"CREATE ROLE {role} LOGIN PASSWORD 'x'; CREATE TABLE t (a int);", f"GRANT SELECT ON t TO {role};"
    )
    async with roles_for(server, seed), connected(server) as admin:
        for _ in range(2):
            async with scratch_database(server) as database:
                assert (await load(server, database, seed)).tables == 1
        assert await admin.fetchval(_RIGHTS, role) == []


async def test_a_template_tells_what_differs_from_its_files_and_takes_its_roles_along(server: Server) -> None:
    made = new_name()
    seed = seed_of(
        f'CREATE EXTENSION "uuid-ossp"; CREATE DATABASE d; DO $$ BEGIN '
        f"EXECUTE concat('CREATE ROLE ', '{made}'); END $$;"
        f"CREATE TABLE t (a int); ALTER TABLE t OWNER TO {made};",
        owners="strip",
    )
    template = await build_template(server, seed, role=None, today=TODAY)
    try:
        assert template.created_roles == (made,)
        assert template.notes == (
            "functions stand in for extension uuid-ossp",
            "1.sql:1: CREATE DATABASE d was set aside",
            "1 statements about owners were left out",
        )
        assert (await build_template(server, seed, role=None, today=TODAY)).notes == template.notes
    finally:
        await drop_template(server, template)
    async with connected(server) as admin:
        assert await admin.fetchval(_RIGHTS, made) is None
