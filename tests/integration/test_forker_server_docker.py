"""A server in a container. Needs a Docker engine and an image: `scripts/docker-postgres` brings both."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from support.databases import connected
from support.forks import connected_as, made_fork, made_template

from redteam_forker.errors import ServerUnavailable
from redteam_forker.servers import container, open_server
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redteam_forker.servers import Server

_OWNER = """
import anyio, sys
from redteam_forker.servers import open_server

async def main():
    async with open_server(docker=sys.argv[1]) as server:
        print(server.facts.port, flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)

anyio.run(main)
"""

installed = pytest.mark.skipif(
    importlib.util.find_spec("testcontainers") is None, reason="the package testcontainers is not installed"
)


@contextlib.contextmanager
def no_warnings() -> Iterator[None]:
    """Where no engine answers, its client leaves a socket open, which the collector tells of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


def client_or_reason() -> tuple[Any, str]:
    try:
        client = container._client()
        client.ping()
    except Exception as error:  # noqa: BLE001 - whatever keeps it from answering is the reason
        return None, type(error).__name__
    return client, ""


@pytest.fixture
def engine() -> Iterator[Any]:
    """The client of a Docker engine that answers."""
    if importlib.util.find_spec("testcontainers") is None:
        pytest.skip("the package testcontainers is not installed")
    with no_warnings():
        client, reason = client_or_reason()
    if client is None:
        pytest.skip(f"no Docker engine answers here ({reason}); see scripts/docker-postgres")
    with contextlib.closing(client):
        yield client


@pytest.fixture
def image(engine: Any) -> str:
    """An image that the engine has; nothing is pulled for a test."""
    name = os.environ.get("REDTEAM_TEST_IMAGE", "postgres:18")
    if not engine.images.list(name=name):
        pytest.skip(f"the Docker engine has no image {name}; see scripts/docker-postgres")
    return name


def ours(engine: Any) -> list[str]:
    return sorted(found.id for found in engine.containers.list(all=True, filters={"label": container.LABEL}))


def inspected(engine: Any, server: Server) -> dict[str, Any]:
    for found in engine.containers.list(filters={"label": container.LABEL}):
        bindings = found.attrs["NetworkSettings"]["Ports"]["5432/tcp"]
        if bindings and int(bindings[0]["HostPort"]) == server.facts.port:
            attributes: dict[str, Any] = found.attrs
            return attributes
    raise AssertionError("its container is not there")


async def test_forks_live_in_a_container_and_it_is_gone_afterwards(engine: Any, image: str) -> None:
    before = ours(engine)
    async with open_server(docker=image) as server:
        assert (server.facts.kind, server.facts.host, server.facts.superuser) == ("docker", "127.0.0.1", True)
        sql = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1);"
        async with made_template(server, sql) as template, made_fork(server, template) as fork:
            async with connected_as(fork) as agent:
                assert await agent.fetchval("SELECT id FROM t") == 1
            # P44: pg_hba.conf is ours, so a role gets into its namesake only, whatever is granted.
            async with connected(server) as admin:
                await admin.execute(f'GRANT CONNECT ON DATABASE postgres TO "{fork.user}"')
                with pytest.raises(asyncpg.PostgresError, match=r"pg_hba\.conf"):
                    async with connected_as(fork, "postgres"):
                        pass
                await admin.execute(f'REVOKE CONNECT ON DATABASE postgres FROM "{fork.user}"')
    assert ours(engine) == before


async def test_container_is_set_up_for_throwaway_data(engine: Any, image: str) -> None:
    async with open_server(docker=image) as server:
        attributes = inspected(engine, server)
        async with connected(server) as session:
            settings = [await session.fetchval(f"SHOW {name}") for name in ("fsync", "wal_level")]
    host = attributes["HostConfig"]
    # P90, P91.
    assert (host["Init"], host["ShmSize"]) == (True, 256 << 20)
    assert {binding["HostIp"] for binding in attributes["NetworkSettings"]["Ports"]["5432/tcp"]} == {
        "127.0.0.1"
    }
    assert settings == ["off", "minimal"]


async def test_container_of_a_killed_owner_is_removed_by_the_next_start(engine: Any, image: str) -> None:
    # P88.
    before = ours(engine)
    argv = [sys.executable, "-W", "ignore", "-c", _OWNER, image]
    async with await anyio.open_process(argv, stderr=None) as owner:
        assert owner.stdout is not None
        await BufferedByteReceiveStream(owner.stdout).receive_until(b"\n", 64)
        leaked = set(ours(engine)) - set(before)
        async with open_server(docker=image):
            assert leaked <= set(ours(engine))  # its owner lives
        owner.kill()
        await owner.wait()
    assert len(leaked) == 1
    async with open_server(docker=image):
        assert leaked.isdisjoint(ours(engine))


async def test_cancelled_start_leaves_no_container(engine: Any, image: str) -> None:
    before = ours(engine)
    with anyio.move_on_after(0.2) as scope:
        async with open_server(docker=image):
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert ours(engine) == before


async def test_image_that_does_not_run_postgres_is_named_with_its_last_words(engine: Any, image: str) -> None:
    before = ours(engine)
    built = f"{image.partition(':')[0]}:broken"
    engine.images.get(image).tag(built)
    made = engine.containers.create(image)
    try:
        made.commit(
            repository=built.partition(":")[0],
            tag="broken",
            changes=['ENTRYPOINT ["/bin/sh", "-c", "echo no cluster for you; exit 3"]'],
        )
        with pytest.raises(ServerUnavailable, match=f"does not start in image '{built}': no cluster for you"):
            async with open_server(docker=built):
                pass
    finally:
        made.remove(v=True)
        engine.images.remove(built, force=True)
    assert ours(engine) == before


@installed
async def test_engine_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    message = ""
    with no_warnings():
        try:
            async with open_server(docker="postgres:18"):
                pass
        except ServerUnavailable as error:
            message = str(error)
    assert "no Docker engine answers" in message


async def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match=r"pip install 'redteam-forker\[docker\]'"):
        async with open_server(docker="postgres:18"):
            pass


def test_docker_goes_with_no_other_kind_of_server(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave them out with a DSN or a container"):
        open_server(docker="postgres:18", shared=tmp_path)
    with pytest.raises(UsageError, match="two servers"):
        open_server("postgresql://me@h/x", docker="postgres:18")


def test_owner_is_known_gone_only_when_it_is() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    label = container.owner_label(process.pid)
    boot, namespace, pid, started = label.split(" ")
    elsewhere = (f"other {namespace} {pid} {started}", f"{boot} other {pid} {started}", "nonsense")
    assert not is_known_gone(label)
    process.communicate()
    assert is_known_gone(label)
    assert [other for other in elsewhere if is_known_gone(other)] == []


def is_known_gone(label: str) -> bool:
    owner = container.owner_of(label)
    return owner is not None and owner.is_known_gone
