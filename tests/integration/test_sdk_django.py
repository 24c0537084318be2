"""Django's backend: its own in production, and on a fork never another context's connection."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.conversations import MINTER
from support.sdk import armed, fork

if TYPE_CHECKING:
    from pathlib import Path

    from redteam_forker.servers import Server

DJANGO = """
import contextvars, os, sys, threading
import django
from django.conf import settings
settings.configure(
    USE_TZ=True,
    DATABASES={"default": {
        "ENGINE": "redteam_sdk.contrib.django", "NAME": "production", "USER": "u", "PASSWORD": "p",
        "HOST": "203.0.113.1", "PORT": "9",
        **({"OPTIONS": {"pool": True}} if "pool" in sys.argv else {"CONN_MAX_AGE": None}),
        **(dict(zip(("NAME", "USER", "PASSWORD", "HOST", "PORT"), sys.argv[2:7]))
           if sys.argv[1] == "production" else {}),
    }},
)
django.setup()
from django.core.signals import request_finished
from django.db import connection, transaction
from redteam_sdk import context
from redteam_sdk.errors import ContextError

def look():
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database()")
        return cursor.fetchone()[0]

if sys.argv[1] == "production":
    print(look(), look())
    connection.close()
else:
    context.arm_from_env()
    one, two = os.environ["ONE"], os.environ["TWO"]
    seen = []
    for token in (one, two, one):
        with context.bind(token):
            seen.append(look())
            with transaction.atomic():
                seen.append(look())
    try:
        look()
    except ContextError as error:
        seen.append(type(error).__name__)
    with context.bind(one):
        look()
        def other():
            try:
                with context.bind(two):
                    return look()
            except ContextError as error:
                return type(error).__name__
        with transaction.atomic():
            # On this thread's connection, in a transaction of another context.
            seen.append(contextvars.Context().run(other))
        assert connection.connection is not None
        request_finished.send(None)
        seen.append(str(connection.connection))  # not kept, whatever CONN_MAX_AGE says
    print(*seen)
"""


def run_django(folder: Path, *arguments: str, **variables: str) -> str:
    script = folder / "site.py"
    script.write_text(DJANGO)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-I", script, *arguments],
        env={"PATH": os.environ["PATH"], **variables},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_django_backend_is_djangos_own_in_production(server: Server, tmp_path: Path) -> None:
    async with fork(server) as place:
        for pool in ([], ["pool"]):
            login = [place.database, place.user, place.password, place.host, str(place.port), *pool]
            seen = await anyio.to_thread.run_sync(run_django, tmp_path, "production", *login)
            assert seen == f"{place.database} {place.database}"


@pytest.mark.parametrize("pool", [[], ["pool"]], ids=["", "pool"])
async def test_django_backend_follows_the_context_and_shares_no_connection(
    server: Server, tmp_path: Path, pool: list[str]
) -> None:
    async with fork(server, "c1") as one, fork(server, "c2") as two:
        with armed(MINTER, server.facts.host):
            given = {
                "REDTEAM_TRUST": os.environ["REDTEAM_TRUST"],
                "ONE": MINTER.mint(one),
                "TWO": MINTER.mint(two),
                "PGHOSTADDR": "203.0.113.1",
            }
        seen = await anyio.to_thread.run_sync(lambda: run_django(tmp_path, "redteam", *pool, **given))
    assert seen.split() == [
        *[one.database] * 2,
        *[two.database] * 2,
        *[one.database] * 2,
        "NoContext",
        "InvalidContext",
        "None",
    ]
