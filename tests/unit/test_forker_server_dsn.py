"""A DSN is read as libpq reads it, and refused in words that do not repeat it."""

from __future__ import annotations

import pytest

from redteam_forker._pg import Target
from redteam_forker.servers.existing import missing_rights, parse_dsn
from redteam_sdk.errors import UsageError


@pytest.mark.parametrize(
    ("dsn", "target"),
    [
        (
            "postgresql://me:pw@db.example:6432/shop",
            Target(host="db.example", port=6432, user="me", password="pw", maintenance="shop"),
        ),
        (
            "postgres://me@[::1]",
            Target(host="::1", port=5432, user="me", password=None, maintenance="postgres"),
        ),
        (
            "postgresql://m%40e:p%2Fw@h/a%20b?sslmode=require",
            Target(host="h", port=5432, user="m@e", password="p/w", maintenance="a b", sslmode="require"),
        ),
        (
            "postgresql:///postgres?host=/run/pg&port=5433&user=me&password=pw",
            Target(host="/run/pg", port=5433, user="me", password="pw", maintenance="postgres"),
        ),
        (
            "postgresql://me@%2Frun%2Fpg/x",
            Target(host="/run/pg", port=5432, user="me", password=None, maintenance="x"),
        ),
    ],
)
def test_dsn_is_read(dsn: str, target: Target) -> None:
    assert parse_dsn(dsn) == target


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        ("mysql://me:geheim@h/x", "must begin with postgresql://"),
        ("host=h user=me password=geheim", "must begin with postgresql://"),
        ("postgresql://me:geheim@h:port/x", "cannot be read"),
        ("postgresql://me:geheim@/x", "must name one host"),
        ("postgresql://me:geheim@a,b/x", "must name one host"),
        ("postgresql://:geheim@h/x", "must name a user"),
        ("postgresql://me:geheim@h/template1", "names template1"),
        ("postgresql://me:geheim@h/x?sslmode=maybe", "sslmode='maybe'"),
        ("postgresql://me:geheim@h/x?service=prod", "not known here: service"),
        ("postgresql://me:geheim@h/x?port=a", "no number"),
    ],
)
def test_dsn_that_cannot_work_is_refused_without_its_password(dsn: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        parse_dsn(dsn)
    assert "geheim" not in str(refused.value)


def test_password_is_in_no_repr() -> None:
    assert "geheim" not in repr(parse_dsn("postgresql://me:geheim@h/x"))


_ABLE = {
    "version": "17.2",
    "version_num": 170002,
    "superuser": False,
    "createdb": True,
    "createrole": True,
    "standby": False,
}


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        ({}, []),
        ({"superuser": True, "createdb": False, "createrole": False}, []),
        ({"createdb": False}, ["role 'me' lacks CREATEDB; run ALTER ROLE me CREATEDB"]),
        ({"createrole": False}, ["role 'me' lacks CREATEROLE; run ALTER ROLE me CREATEROLE"]),
        ({"version": "14.9", "version_num": 140009}, ["it is PostgreSQL 14.9, and 15 to 18 are supported"]),
        ({"version": "19.0", "version_num": 190000}, ["it is PostgreSQL 19.0, and 15 to 18 are supported"]),
        ({"standby": True}, ["it is a standby, which takes no writes; name its primary"]),
    ],
)
def test_what_is_missing_is_named(change: dict[str, object], problems: list[str]) -> None:
    assert missing_rights({**_ABLE, **change}, role="me") == problems
