"""What a seed may not do is refused before anything runs, by file and line."""

from __future__ import annotations

import pytest

from redteam_forker.errors import SeedError
from redteam_forker.seeds import Seed, SeedFile, lint


def seed_of(*scripts: str) -> Seed:
    return Seed(
        files=tuple(
            SeedFile(name=f"{place}.sql", data=text.encode()) for place, text in enumerate(scripts, 1)
        )
    )


_REFUSED = [
    ("CREATE DATABASE x", "CREATE DATABASE"),
    ("DROP DATABASE IF EXISTS x", "DROP DATABASE"),
    ("ALTER DATABASE x SET search_path = a", "ALTER DATABASE"),
    ("ALTER DATABASE x OWNER TO y", "database"),
    ("ALTER DATABASE x RENAME TO y", "renames a database"),
    ("COMMENT ON DATABASE x IS 'y'", "about a database"),
    ("GRANT CONNECT ON DATABASE x TO y", "about a database"),
    ("ALTER SYSTEM SET work_mem = '1GB'", "ALTER SYSTEM"),
    ("CREATE TABLESPACE x LOCATION '/x'", "CREATE TABLESPACE"),
    ("COPY t FROM PROGRAM 'curl x'", "COPY ... PROGRAM"),
    ("COPY t TO PROGRAM 'curl x'", "COPY ... PROGRAM"),
    ("COPY t FROM '/etc/passwd'", "COPY with a file"),
    ("COPY (SELECT 1) TO '/tmp/x'", "COPY with a file"),
    ("CREATE SUBSCRIPTION s CONNECTION 'host=x' PUBLICATION p", "CREATE SUBSCRIPTION"),
    ("CREATE SERVER s FOREIGN DATA WRAPPER w", "CREATE SERVER"),
    ("CREATE USER MAPPING FOR x SERVER y", "CREATE USER MAPPING"),
    ("CREATE FOREIGN TABLE t (a int) SERVER s", "CREATE FOREIGN TABLE"),
    ("IMPORT FOREIGN SCHEMA a FROM SERVER b INTO c", "IMPORT FOREIGN SCHEMA"),
    ("CREATE EXTENSION dblink", "extension dblink"),
    ("CREATE EXTENSION IF NOT EXISTS postgres_fdw WITH SCHEMA x", "extension postgres_fdw"),
    ("CREATE EXTENSION file_fdw", "extension file_fdw"),
    ("CREATE ROLE x SUPERUSER", "SUPERUSER"),
    ("CREATE ROLE x CREATEROLE", "CREATEROLE"),
    ("CREATE USER x CREATEDB", "CREATEDB"),
    ("CREATE ROLE x REPLICATION", "REPLICATION"),
    ("CREATE ROLE x BYPASSRLS", "BYPASSRLS"),
    ("ALTER ROLE x WITH SUPERUSER", "SUPERUSER"),
    ("ALTER ROLE x SET search_path = a", "ALTER ROLE ... SET"),
    ("DROP ROLE IF EXISTS x", "DROP ROLE"),
    ("CREATE ROLE x IN ROLE y", "GRANT role TO role"),
    ("GRANT pg_execute_server_program TO x", "GRANT pg_execute_server_program"),
    ("DROP OWNED BY x", "DROP OWNED"),
    ("REASSIGN OWNED BY x TO y", "REASSIGN OWNED"),
    ("CREATE EXTENSION plpython3u", "language plpython3u"),
    ("CREATE LANGUAGE plperlu", "language plperlu"),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE plpython3u AS 'return 1'", "language plpython3u"),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE c AS '/tmp/x.so', 'f'", "language c"),
    ("CREATE FUNCTION f() RETURNS int LANGUAGE c AS '$libdir/dblink', 'f'", "language c"),
    ("DO LANGUAGE plpython3u 'x'", "language plpython3u"),
    ("CREATE EVENT TRIGGER e ON login EXECUTE FUNCTION f()", "login event trigger"),
    ("LOAD 'x'", "LOAD"),
    ("PREPARE TRANSACTION 'x'", "PREPARE TRANSACTION"),
    ("SET standard_conforming_strings = off", "standard_conforming_strings"),
    ("SELECT pg_catalog.lo_import('/etc/passwd')", "lo_import()"),
    ("INSERT INTO t SELECT * FROM dblink('host=x', 'y') AS d(a int)", "dblink()"),
    ("DO $$ BEGIN COPY t FROM PROGRAM 'x'; END $$", "in the body that begins here: COPY ... PROGRAM"),
    ("DO $$ BEGIN EXECUTE 'ALTER SYSTEM SET a = 1'; END $$", "in the body that begins here: ALTER SYSTEM"),
    (
        "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM dblink_exec('a'); END $$",
        "in the body that begins here: dblink_exec()",
    ),
    ("CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'COPY t TO PROGRAM ''x'''", "COPY ... PROGRAM"),
    ("SELECT FROM WHERE", "syntax error"),
    ("CREATE TABLE @schema.t (a int)", "fill in the placeholder @schema"),
]

_REFUSED_COMMANDS = [
    ("\\connect other", "\\connect"),
    ("\\c other", "\\c:"),
    ("\\! rm -rf x", "\\!"),
    ("\\copy t from program 'x'", "\\copy"),
    ("\\copy t to 'x.csv'", "\\copy"),
    ("\\o | sh", "\\o"),
    ("SELECT 1 \\g | sh", "\\g"),
    ("\\w x", "\\w"),
    ("\\i other.sql", "list that file under seed.files"),
    ("SELECT 1 \\gexec", "\\gexec"),
    ("\\prompt x", "\\prompt"),
    ("\\lo_import x", "\\lo_import"),
    ("\\set x 1 \\! sh", "more than one backslash command"),
    ("\\nonsense", "\\nonsense"),
]


@pytest.mark.parametrize(("statement", "reason"), _REFUSED, ids=[statement[:40] for statement, _ in _REFUSED])
def test_a_statement_that_leaves_the_database_is_refused_by_file_and_line(
    statement: str, reason: str
) -> None:
    with pytest.raises(SeedError) as refusal:
        lint(seed_of("SELECT 1;", f"-- first\nSELECT 2;\n\n{statement};\n"))
    assert str(refusal.value).startswith("2.sql:4: ")
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    ("command", "reason"), _REFUSED_COMMANDS, ids=[command for command, _ in _REFUSED_COMMANDS]
)
def test_a_command_that_leaves_the_database_is_refused_by_file_and_line(command: str, reason: str) -> None:
    with pytest.raises(SeedError) as refusal:
        lint(seed_of(f"SELECT 2;\n\n{command}\n"))
    assert str(refusal.value).startswith("1.sql:3: ")
    assert reason in str(refusal.value)


@pytest.mark.parametrize(
    "script",
    [
        "CREATE TABLE t (a int);\nCOPY t FROM stdin;\n1\n\\.\n",
        "\\set n 3\nINSERT INTO t VALUES (:n, :'n', ':n');",
        "\\restrict abc\nSET client_encoding = 'UTF8';\n\\unrestrict abc",
        "CREATE EXTENSION hstore; CREATE EXTENSION plpgsql; CREATE LANGUAGE plperl;",
        "CREATE FUNCTION f(text) RETURNS record LANGUAGE c AS '$libdir/tablefunc', 'crosstab';",
        "INSERT INTO t VALUES ('CREATE DATABASE x; dblink(');",
        "INSERT INTO t VALUES " + ", ".join(["('CREATE DATABASE x')"] * 2000) + ";",
        "SELECT 1 \\g\n\\copy t from stdin\n1\n\\.\n",
        "-- nothing but a comment",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;",
        "GRANT SELECT ON t TO x; GRANT a TO b;",
        "CREATE PUBLICATION p FOR ALL TABLES; CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f();",
    ],
)
def test_what_stays_in_the_database_is_not_refused(script: str) -> None:
    assert lint(seed_of(script)).scripts[0].data == script.encode()


def test_every_refusal_of_a_seed_is_told_at_once() -> None:
    with pytest.raises(SeedError) as refusal:
        lint(seed_of("DROP DATABASE a;\nCREATE DATABASE a;", "\\c a"))
    assert [line.split(" ")[0] for line in str(refusal.value).splitlines()] == [
        "1.sql:1:",
        "1.sql:2:",
        "2.sql:1:",
    ]


def test_the_roles_that_a_seed_refers_to_are_collected() -> None:
    script = """
        ALTER TABLE t OWNER TO owner_;
        GRANT SELECT ON t TO grantee, PUBLIC, CURRENT_USER;
        GRANT outer_ TO member_;
        ALTER TABLE t OWNER TO pg_database_owner;
        CREATE POLICY p ON t TO policed USING (true);
        ALTER DEFAULT PRIVILEGES FOR ROLE maker GRANT SELECT ON TABLES TO reader;
        SET ROLE actor;
        SET SESSION AUTHORIZATION 'author';
        RESET ROLE;
        SET ROLE NONE;
        CREATE SCHEMA s AUTHORIZATION "Mixed Case";
        DO $$ BEGIN GRANT SELECT ON t TO doer; CREATE ROLE made; END $$;
        CREATE USER login_ PASSWORD 'x';
    """
    wanted = ["actor", "author", "doer", "grantee", "login_", "made", "maker", "member_", "outer_", "owner_"]
    assert lint(seed_of(script)).roles == tuple(sorted([*wanted, "Mixed Case", "policed", "reader"]))


def test_roles_are_made_by_the_platform_and_lines_stay_in_place() -> None:
    script = "CREATE TABLE ä (a int);\nCREATE ROLE x\n LOGIN PASSWORD 'y';\nALTER ROLE x NOLOGIN; SELECT 1;\n"
    checked = lint(seed_of(script))
    assert checked.set_aside == ("1.sql:2: CREATE ROLE x", "1.sql:4: ALTER ROLE x")
    assert checked.scripts[0].data.decode().splitlines() == [
        "CREATE TABLE ä (a int);",
        " " * len("CREATE ROLE x"),
        " " * len(" LOGIN PASSWORD 'y';"),
        " " * len("ALTER ROLE x NOLOGIN;") + " SELECT 1;",
    ]


def test_a_latin_1_file_keeps_its_bytes() -> None:
    data = "SET client_encoding = 'LATIN1';\nCREATE ROLE x;\nSELECT 'ä';".encode("latin-1")
    checked = lint(Seed(files=(SeedFile(name="a.sql", data=data),)))
    assert checked.scripts[0].data == data.replace(b"CREATE ROLE x;", b" " * 14)
