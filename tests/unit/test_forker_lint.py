"""What a seed may not do is refused before anything runs, by file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.seeds import seed_of

from redteam_forker.errors import SeedError
from redteam_forker.seeds import FLAGS, lint, read_seed

_REFUSED = [
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
    ("ALTER ROLE x IN DATABASE other SET search_path = a", "ALTER ROLE ... SET"),
    ("ALTER ROLE x SET session_preload_libraries = 'a'", "ALTER ROLE ... SET"),
    ("DO $$ BEGIN CREATE ROLE x SUPERUSER; END $$", "in the body that begins here: SUPERUSER"),
    ("DO $$ BEGIN GRANT pg_monitor TO x; END $$", "in the body that begins here: GRANT pg_monitor"),
    ("DO $$ BEGIN EXECUTE format('CREATE ROLE %I BYPASSRLS', 'x'); END $$", "makes a role BYPASSRLS"),
    ("INSERT INTO cron.job (command) VALUES ('x')", "seed.allow: [cron]"),
    ("COPY cron.job (command) FROM stdin;\nx\n\\.\n", "seed.allow: [cron]"),
    ("SELECT cron.schedule('0 0 * * *', 'x')", "seed.allow: [cron]"),
    ("CREATE EXTENSION pg_cron", "seed.allow: [cron]"),
    ("CREATE EXTENSION pg_net", "seed.allow: [network-extension]"),
    ("SELECT net.http_post(url := 'x')", "seed.allow: [network-extension]"),
    ("SELECT http_get('x')", "seed.allow: [network-extension]"),
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
    ("\\i other.sql", "write the file's text here"),
    ("SELECT 1 \\gexec", "\\gexec"),
    ("\\prompt x", "\\prompt"),
    ("\\lo_import x", "\\lo_import"),
    ("\\set x 1 \\! sh", "more than one backslash command"),
    ("\\set x `rm y`", "in backquotes is a program"),
    ("\\if `true`", "in backquotes is a program"),
    ("\\set x '; DROP DATABASE y'", "it changes where statements end"),
    ("\\set SINGLELINE on", "it changes where statements end"),
    ("SELECT 1 AS x \\gset\nSELECT :x;", "may be any SQL that a query gave"),
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
    assert str(refusal.value).startswith(f"1.sql:{3 + command.count(chr(10))}: ")
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
        "SELECT 1 AS x \\gset\nINSERT INTO t VALUES (:'x', '{\"a\":1, \"b\":c}', 'at 10:30 :y', a[1:2]);",
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;",
        "GRANT SELECT ON t TO x;",
        "CREATE PUBLICATION p FOR ALL TABLES; CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f();",
    ],
)
def test_what_stays_in_the_database_is_not_refused(script: str) -> None:
    assert lint(seed_of(script)).scripts[0].data == script.encode()


def test_every_refusal_of_a_seed_is_told_at_once() -> None:
    with pytest.raises(SeedError) as refusal:
        lint(seed_of("DROP DATABASE a;\nLOAD 'x';", "\\c a"))
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


_ALLOWED = {
    "c-function": "CREATE FUNCTION f() RETURNS int LANGUAGE c AS '/opt/x.so', 'f'",
    "copy-program": "COPY t FROM PROGRAM 'x'",
    "cron": "SELECT cron.schedule('a', 'b')",
    "dblink": "CREATE EXTENSION dblink; SELECT dblink_connect('x')",
    "event-trigger": "CREATE EVENT TRIGGER e ON login EXECUTE FUNCTION f()",
    "foreign-server": (
        "CREATE EXTENSION postgres_fdw; CREATE SERVER s FOREIGN DATA WRAPPER postgres_fdw; "
        "ALTER SERVER s OWNER TO x; CREATE FOREIGN TABLE t (a int) SERVER s"
    ),
    "network-extension": "CREATE EXTENSION http; SELECT net.http_get('x')",
    "server-file": "COPY t FROM '/tmp/x'; SELECT pg_read_file('x')",
    "untrusted-language": "CREATE LANGUAGE plpython3u; DO LANGUAGE plpython3u 'x'",
    "user-mapping": "CREATE USER MAPPING FOR x SERVER s",
}


@pytest.mark.parametrize(("flag", "script"), _ALLOWED.items(), ids=_ALLOWED)
def test_what_reaches_outside_is_refused_until_its_flag_allows_it(flag: str, script: str) -> None:
    with pytest.raises(SeedError, match=rf"or allow it with seed\.allow: \[{flag}\]"):
        lint(seed_of(script))
    assert lint(seed_of(script, allow=frozenset({flag}))).scripts[0].data == script.encode()


def test_every_flag_is_one_that_some_refusal_names() -> None:
    assert set(FLAGS) == {*_ALLOWED, "subscription", "missing-extension"}


def test_subscriptions_are_never_made_only_left_out() -> None:
    script = (
        "CREATE SUBSCRIPTION s CONNECTION 'host=x' PUBLICATION p;\nALTER SUBSCRIPTION s OWNER TO x;\nTABLE t;"
    )
    with pytest.raises(SeedError, match=r"or leave it out with seed\.allow: \[subscription\]"):
        lint(seed_of(script))
    checked = lint(seed_of(script, allow=frozenset({"subscription"})))
    assert checked.scripts[0].data.split() == [b"TABLE", b"t;"]
    assert [line[:27] for line in checked.set_aside] == [
        "1.sql:1: CREATE SUBSCRIPTIO",
        "1.sql:2: ALTER SUBSCRIPTION",
    ]


def test_a_dumps_own_database_is_the_templates() -> None:
    script = (
        "SET a.b = 1;\nDROP DATABASE IF EXISTS shop;\nCREATE DATABASE shop\n  TEMPLATE template0;\n"
        "ALTER DATABASE shop OWNER TO x;\nCOMMENT ON DATABASE shop IS '';\nGRANT ALL ON DATABASE shop TO x;\n"
        "ALTER DATABASE shop SET search_path TO a;\nALTER ROLE x IN DATABASE shop SET b TO c;\n"
        "\\connect shop\nCREATE TABLE t (a int);\n"
    )
    checked = lint(seed_of(script))
    assert [line.removeprefix("1.sql:") for line in checked.set_aside] == [
        "2: DROP DATABASE shop",
        "3: CREATE DATABASE shop",
        "5: ALTER DATABASE shop OWNER TO",
        "6: COMMENT ON DATABASE shop IS",
        "7: GRANT ALL ON DATABASE shop",
        "10: \\connect shop",
    ]
    assert [line for line in checked.scripts[0].data.decode().splitlines() if line.strip()] == [
        "SET a.b = 1;",
        'ALTER DATABASE "template" SET search_path TO a;',
        'ALTER ROLE x IN DATABASE "template" SET b TO c;',
        "DISCARD ALL;",
        "CREATE TABLE t (a int);",
    ]
    assert checked.scripts[0].data.count(b"\n") == script.count("\n")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(
            "CREATE DATABASE a;\n\\connect b", "1.sql:2: \\connect: it reaches another", id="another"
        ),
        pytest.param(
            "CREATE DATABASE a;\n\\c a postgres", "1.sql:2: \\c: it reaches another", id="as-another-role"
        ),
        pytest.param("CREATE DATABASE a;\nDROP DATABASE b;", "1.sql:2: DROP DATABASE", id="drop-another"),
        pytest.param(
            "CREATE DATABASE a;\nALTER DATABASE a RENAME TO b;", "1.sql:2: this renames", id="rename"
        ),
        pytest.param(
            "CREATE DATABASE a;\nALTER DATABASE b SET c TO d;", "1.sql:2: ALTER DATABASE", id="set-another"
        ),
        pytest.param("CREATE DATABASE a;\nCREATE DATABASE b;", "2 databases: a, b; pg_dump one", id="two"),
        pytest.param(
            "CREATE DATABASE a;\nCREATE TABLE t (a int);\n\\c a",
            "1.sql:3: \\c a: what stands before it, from 1.sql:2 on, was for another database",
            id="something-before",
        ),
    ],
)
def test_a_database_that_is_not_the_dumps_own_is_refused(script: str, words: str) -> None:
    with pytest.raises(SeedError) as refusal:
        lint(seed_of(script))
    assert words in str(refusal.value)


def test_rights_that_reach_past_a_database_are_not_given_and_that_is_said() -> None:
    script = (
        "CREATE ROLE a SUPERUSER LOGIN IN ROLE pg_monitor, c;\nALTER ROLE b BYPASSRLS NOSUPERUSER;\n"
        "GRANT pg_write_all_data, c TO b WITH INHERIT FALSE;\nDROP ROLE IF EXISTS d;\nREVOKE c FROM a;\n"
    )
    checked = lint(seed_of(script))
    assert not checked.scripts[0].data.strip()
    assert checked.set_aside == (
        "1.sql:1: CREATE ROLE a (not given: SUPERUSER, pg_monitor)",
        "1.sql:2: ALTER ROLE b (not given: BYPASSRLS)",
        "1.sql:3: GRANT pg_write_all_data",
        "1.sql:4: DROP ROLE d",
        "1.sql:5: REVOKE c FROM a",
    )
    assert [(each.role, each.member, each.inherit) for each in checked.memberships] == [
        ("c", "a", True),
        ("c", "b", False),
    ]


def test_a_roles_settings_hold_in_the_template_only() -> None:
    script = "ALTER ROLE \"App\" SET search_path TO a, b;\nALTER USER ALL SET x.y = 'z';"
    assert lint(seed_of(script)).scripts[0].data.decode().splitlines() == [
        'ALTER ROLE "App" IN DATABASE "template" SET search_path TO a, b;',
        "ALTER USER ALL IN DATABASE \"template\" SET x.y = 'z';",
    ]


def test_owners_are_stripped_when_that_is_asked_for() -> None:
    script = (
        "ALTER TABLE t OWNER TO a;\nALTER SCHEMA s OWNER TO b;\nSET SESSION AUTHORIZATION c;\n"
        "GRANT SELECT ON t TO d;\nALTER TABLE t ADD x int, OWNER TO e;"
    )
    stripped = lint(seed_of(script, owners="strip"))
    assert stripped.roles == ("d", "e")
    assert stripped.stripped_owners == (
        "1.sql:1: ALTER TABLE t OWNER TO a",
        "1.sql:2: ALTER SCHEMA s OWNER TO b",
        "1.sql:3: SET SESSION AUTHORIZATION c",
    )
    assert b"OWNER TO a" not in stripped.scripts[0].data
    assert lint(seed_of(script)).roles == ("a", "b", "c", "d", "e")


def test_what_every_database_has_already_is_no_error() -> None:
    checked = lint(seed_of("CREATE SCHEMA public;\nCOMMENT ON EXTENSION plpgsql IS 'x';"))
    assert checked.scripts[0].data.split() == b"CREATE SCHEMA IF NOT EXISTS public;".split()
    kept = "DROP SCHEMA public; CREATE SCHEMA public;"
    assert lint(seed_of(kept)).scripts[0].data == kept.encode()


def test_what_hangs_on_the_dumps_machine_stays_behind() -> None:
    checked = lint(
        seed_of("SET default_tablespace = fast;\nSET default_tablespace = '';\nSET NAMES 'latin1';")
    )
    assert checked.set_aside == (
        "1.sql:1: SET default_tablespace = fast",
        "1.sql:3: SET client_encoding = latin1 (converted to UTF-8)",
    )
    assert checked.scripts[0].data.split() == b"SET default_tablespace = '';".split()


def test_a_setting_that_a_server_does_not_know_is_left_out_there() -> None:
    script = lint(seed_of("SET transaction_timeout = 0;\nSET work_mem = '1MB';")).scripts[0]
    assert script.data.startswith(b"SET transaction_timeout")
    assert script.render(unknown_settings={"transaction_timeout"}).split(b"\n") == [
        b" " * len("SET transaction_timeout = 0;"),
        b"SET work_mem = '1MB';",
    ]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_dump_without_its_end_is_refused(ending: str) -> None:
    text = "--\n-- PostgreSQL database dump\n--\n\nCREATE TABLE t (a int);\n".replace("\n", ending)
    with pytest.raises(SeedError, match=r"1\.sql:6: pg_dump's last line .* is missing: the file is cut off"):
        lint(seed_of(text))
    assert lint(seed_of(text + "-- PostgreSQL database dump complete" + ending)).scripts


def test_an_included_files_lines_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "all.sql").write_text("SELECT 1;\n\\i one.sql\nSELECT 2;\nLOAD 'a';\n")
    (tmp_path / "one.sql").write_text("SELECT 3;\nLOAD 'b'")
    with pytest.raises(SeedError) as refusal:
        lint(read_seed(tmp_path, ["all.sql"], anchor=None, moves=()))
    assert [line.partition(" ")[0] for line in str(refusal.value).splitlines()] == [
        "one.sql:2:",
        "all.sql:4:",
    ]


def test_a_role_that_nothing_in_the_template_needs_is_not_made() -> None:
    script = "DROP ROLE a; CREATE DATABASE d; ALTER DATABASE d OWNER TO b; GRANT ALL ON DATABASE d TO c;"
    assert lint(seed_of(script)).roles == ()


def test_the_docs_list_every_flag() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/seeds.md").read_text()
    rows = [f"| `{flag}` | {what} |" for flag, what in FLAGS.items()]
    assert [line for line in page.splitlines() if line in rows] == rows


def test_psql_stops_at_the_first_error_whatever_the_script_says() -> None:
    checked = lint(seed_of("\\set ON_ERROR_STOP off\nTABLE t;\n\\unset ON_ERROR_STOP\n"))
    assert checked.scripts[0].data.split() == [b"TABLE", b"t;"]
