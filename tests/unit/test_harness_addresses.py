"""A fork's address in the forms that code expects, read back by the drivers' parsers; what is scrubbed."""

from __future__ import annotations

import re

import psycopg.conninfo
import pytest
import sqlalchemy
from pydantic import ValidationError

from redteam_forker import Fork
from redteam_harness.agents.address import addresses, check_template
from redteam_harness.agents.environment import agent_environment
from redteam_harness.launch.agent_specs import CommandAgent
from redteam_sdk.serve.probe import read_address

WHERE = {"user": "rt_a", "password": "s3cret-_x", "database": "rt_a"}
HOSTS = ["/run/rt/s", "127.0.0.1", "::1", "db.example"]
URL = "{user}:{password}@/{database}?host={host}&port={port}"
TEMPLATES = {
    "DSN": "{dsn}",
    "ALCHEMY": f"postgresql+asyncpg://{URL}",
    "POSTGRES": f"postgres://{URL}",
    "KEYWORDS": "host={host} port={port} user={user} password={password} dbname={database}",
}


def _fork(host: str) -> Fork:
    return Fork(
        name="rt_a", password="s3cret-_x", host=host, port=5433, watermark=1, created_s=0.0, reaches=("rt_a",)
    )


@pytest.mark.parametrize("host", HOSTS)
def test_every_form_of_address_leads_the_drivers_to_the_fork(host: str) -> None:
    filled = addresses(TEMPLATES, _fork(host))
    expected = {**WHERE, "host": host, "port": 5433}
    assert {name: read_address(value) for name, value in filled.items()} == dict.fromkeys(TEMPLATES, expected)
    for name in ("DSN", "POSTGRES", "KEYWORDS"):
        libpq = psycopg.conninfo.conninfo_to_dict(filled[name])
        assert (libpq["host"], libpq["dbname"], str(libpq["port"])) == (host, "rt_a", "5433")
    if not host.startswith(":"):
        alchemy = sqlalchemy.make_url(filled["ALCHEMY"])
        assert (alchemy.query["host"], alchemy.database, alchemy.query["port"]) == (host, "rt_a", "5433")


@pytest.mark.parametrize("template", ["{dns}", "{}", "{user!r}", "{port:>9}", "{dsn.x}", "{"])
def test_a_template_with_anything_but_the_known_fields_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"is not known|Single|expected"):
        check_template(template)


def test_braces_and_texts_without_fields_are_kept() -> None:
    assert addresses({"X": check_template("{{a}} {database}")}, _fork("/s")) == {"X": "{a} rt_a"}


@pytest.mark.parametrize("value", ["mysql://u@h/d", "just a text", "", "host=somewhere", "{'a': 1}"])
def test_what_is_no_address_is_read_as_none(value: str) -> None:
    assert read_address(value) is None


def test_the_agents_environment_holds_no_way_to_a_database_that_was_not_passed_on_by_name() -> None:
    production = {
        "DATABASE_URL": "x",
        "REPLICA_DATABASE_URL": "x",
        "SQLALCHEMY_DATABASE_URI": "x",
        "SENTRY_DSN": "x",
        "PGSERVICE": "prod",
        "PGSERVICEFILE": "/etc/prod.conf",
        "POSTGRES_PASSWORD": "x",
        "DB_HOST": "prod",
        "JDBC": "jdbc:postgresql://prod/db",
        "SETTINGS": '{"url": "POSTGRES://prod/db"}',
        "CONNINFO": "host=prod dbname=app",
        "ANTHROPIC_API_KEY": "x",
        "REDTEAM_TRUST": "x",
    }
    harmless = {"HOME": "/home/me", "PATH": "/bin", "TZ": "UTC", "APP_MODE": "postgres-like"}
    kept = agent_environment({**production, **harmless}, ["DB_HOST"])
    assert {name: kept[name] for name in (*harmless, "DB_HOST")} == {**harmless, "DB_HOST": "prod"}
    # libpq would look into the home directory for what is not set (a service, a password of production's).
    assert set(kept) - set(harmless) == {"DB_HOST", "PGPASSFILE", "PGSERVICEFILE", "PGSYSCONFDIR"}


@pytest.mark.parametrize(
    ("more", "says"),
    [
        pytest.param({"env": "DATABASE_URL", "egress": ["api.example:443"]}, "no effect", id="egress"),
        pytest.param({}, "a command needs env", id="no-env"),
        pytest.param({"env": {"DATABASE_URL": "{dns}"}}, "{dns} is not known", id="template"),
    ],
)
def test_a_command_is_refused_what_it_cannot_keep(more: dict[str, object], says: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(says)):
        CommandAgent.model_validate({"command": ["desk"], **more})
