"""Extensions that a server lacks: named before anything is loaded, or stood in for by functions."""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import TYPE_CHECKING

import asyncpg
import pytest
from support.databases import connected, scratch_database
from support.seeds import loaded, loading, seed_of

from redteam_forker.errors import SeedError
from redteam_forker.seeds import load, preflight

if TYPE_CHECKING:
    from redteam_forker.servers import Server


async def test_missing_extensions_are_named_before_loading_with_who_has_them(server: Server) -> None:  # P29
    seed = seed_of(
        "CREATE TABLE t (a int);\nCREATE EXTENSION IF NOT EXISTS postgis;\nCREATE EXTENSION no_such;\n"
        "CREATE EXTENSION hstore;"
    )
    assert (await preflight(server, seed)).missing == ("postgis", "no_such")
    async with scratch_database(server) as database:
        with pytest.raises(SeedError) as refusal:
            await load(server, database, seed)
        async with connected(server, database) as session:
            assert not await session.fetch("SELECT FROM pg_tables WHERE schemaname = 'public'")
    lines = str(refusal.value).splitlines()
    assert [line.partition(": ")[0] for line in lines] == ["1.sql:2", "1.sql:3"]
    assert "lacks extension 'postgis' (image postgis/postgis); name a server that has it" in lines[0]
    assert all("seed.allow: [missing-extension]" in line for line in lines)


async def test_missing_extensions_are_left_out_when_that_is_allowed(server: Server) -> None:
    script = "CREATE EXTENSION pg_graphql;\nCOMMENT ON EXTENSION pg_graphql IS 'x';\nCREATE TABLE t (a int);"
    facts = await loaded(server, seed_of(script, allow=frozenset({"missing-extension"})))
    assert (facts.tables, facts.stand_ins) == (1, ())
    assert facts.notes == ("extension pg_graphql is left out",)


@pytest.mark.parametrize(
    ("create", "schema"),
    [
        pytest.param('CREATE EXTENSION IF NOT EXISTS "uuid-ossp"', "", id="current-schema"),
        pytest.param(
            'CREATE SCHEMA "Ext"; SET search_path = \'\'; CREATE EXTENSION "uuid-ossp" WITH SCHEMA "Ext"',
            '"Ext".',
            id="named-schema",
        ),
    ],
)
async def test_uuids_are_made_without_uuid_ossp(server: Server, create: str, schema: str) -> None:
    script = f"""{create};
        COMMENT ON EXTENSION "uuid-ossp" IS 'generate universally unique identifiers (UUIDs)';
        CREATE TABLE public.t (v4 uuid DEFAULT {schema}uuid_generate_v4(),
          v1 uuid DEFAULT {schema}uuid_generate_v1(),
          v3 uuid DEFAULT {schema}uuid_generate_v3({schema}uuid_ns_dns(), 'exämple.org'));
        INSERT INTO public.t DEFAULT VALUES; INSERT INTO public.t DEFAULT VALUES;"""
    async with loading(server, seed_of(script)) as (database, facts):
        assert facts.stand_ins == ("uuid-ossp",)
        assert facts.notes == ("functions stand in for extension uuid-ossp",)
        async with connected(server, database) as session:
            rows = await session.fetch("SELECT v4::text, v1::text, v3::text, clock_timestamp() AS now FROM t")
            assert {row["v3"] for row in rows} == {str(uuid.uuid3(uuid.NAMESPACE_DNS, "exämple.org"))}
            assert len({row["v4"] for row in rows} | {row["v1"] for row in rows}) == 4
            for row in rows:
                first, fourth = uuid.UUID(row["v1"]), uuid.UUID(row["v4"])
                assert (first.version, first.variant, fourth.version) == (1, uuid.RFC_4122, 4)
                made_s = (first.time - 0x01B21DD213814000) / 1e7
                assert 0 <= row["now"].timestamp() - made_s < 600
            with pytest.raises(
                asyncpg.FeatureNotSupportedError, match=r"uuid_generate_v5\(\) is not in the stand-in"
            ):
                await session.fetchval(f"SELECT {schema}uuid_generate_v5(v3, 'x') FROM public.t")


async def test_hashes_are_those_of_pgcrypto(server: Server) -> None:
    seed = seed_of("CREATE EXTENSION pgcrypto; CREATE TABLE t (a int);")
    async with loading(server, seed) as (database, facts), connected(server, database) as session:
        assert facts.stand_ins == ("pgcrypto",)
        for kind in ("md5", "sha224", "SHA256", "sha384", "sha512"):
            expected = hashlib.new(kind.lower(), "grün".encode()).digest()
            assert await session.fetchval("SELECT digest('grün', $1)", kind) == expected
            assert await session.fetchval("SELECT digest(convert_to('grün', 'UTF8'), $1)", kind) == expected
            for key in ("k", "long " * 40):
                signed = hmac.digest(key.encode(), "grün".encode(), kind.lower())
                assert await session.fetchval("SELECT hmac('grün', $1, $2)", key, kind) == signed
        drawn = [await session.fetchval("SELECT gen_random_bytes($1)", size) for size in (1, 33, 33, 1024)]
        assert [len(each) for each in drawn] == [1, 33, 33, 1024]
        assert drawn[1] != drawn[2]
        assert await session.fetchval("SELECT public.gen_random_uuid() <> gen_random_uuid()")
        for lacking in ("digest('x', 'sha1')", "crypt('a', 'b')", "gen_salt('bf', 8)"):
            with pytest.raises(
                asyncpg.FeatureNotSupportedError, match="is not in the stand-in for extension pgcrypto"
            ):
                await session.fetchval(f"SELECT {lacking}")


async def test_a_seed_that_uses_what_a_stand_in_lacks_is_refused_before_loading(server: Server) -> None:
    script = """CREATE EXTENSION pgcrypto;
        CREATE TABLE t (a text);
        CREATE FUNCTION login() RETURNS text LANGUAGE sql AS 'SELECT crypt(''a'', ''b'')';
        INSERT INTO t VALUES ('crypt(');
        INSERT INTO t VALUES (public.crypt('secret', gen_salt('bf')));"""
    with pytest.raises(SeedError) as refusal:
        await loaded(server, seed_of(script))
    assert [line.partition("()")[0] for line in str(refusal.value).splitlines()] == [
        "1.sql:5: crypt",
        "1.sql:5: gen_salt",
    ]
    assert "name a server that has the extension with --server" in str(refusal.value)
