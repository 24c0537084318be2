"""The egress guard: real clients of every kind against real listeners that must never see a byte.

Long because each kind of client is a way out of its own, and one that is left out is a hole nobody looks at.
"""

from __future__ import annotations

import _socket
import asyncio
import contextlib
import dataclasses
import http.client
import os
import queue
import smtplib
import socket
import subprocess
import sys
import threading
import urllib.request
from socket import getaddrinfo as captured_getaddrinfo
from typing import TYPE_CHECKING, Any

import anyio
import asyncpg
import httpx
import httpx2
import psycopg
import pytest
import requests
from support.sdk import Minter, armed, context_for
from support.sdk import fork as made_fork

from redteam_sdk import db
from redteam_sdk.context import arm, bind, bound, disarm
from redteam_sdk.egress import guard
from redteam_sdk.errors import EgressRefused
from redteam_sdk.faults import cause_of
from redteam_sdk.record import recording

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from redteam_forker.servers import Server

MINTER = Minter()
NOWHERE = "secret-7f3k.exfiltration.invalid"  # a look-up of it would end in gaierror, which no test expects
ANSWER = b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Listener:
    """Something outside that is listening, and remembers the first bytes of each who came."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.address: Any = sock.getsockname()
        self.heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._is_stream = sock.type == socket.SOCK_STREAM
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self.address[1])

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                if not self._is_stream:
                    self.heard.put(self._socket.recv(2048))
                    continue
                peer, _ = self._socket.accept()
                with peer, contextlib.suppress(OSError):
                    peer.settimeout(10)
                    self.heard.put(peer.recv(2048))
                    peer.sendall(ANSWER)

    def saw_nothing(self) -> bool:
        """Whether the first that ever arrives is a line that is sent now, unguarded."""
        with socket.socket(self._socket.family, self._socket.type) as ours:
            ours.connect(self.address)
            ours.sendall(b"the first")
            return self.heard.get(timeout=10) == b"the first" and self.heard.empty()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@contextlib.contextmanager
def listening(
    family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, at: Any = None
) -> Iterator[Listener]:
    """A listener that was there before this process was armed, so that it counts as somebody else's."""
    assert not guard.is_on()
    sock = socket.socket(family, kind)
    sock.bind(at if at is not None else ("::1", 0) if family == socket.AF_INET6 else ("127.0.0.1", 0))
    if kind == socket.SOCK_STREAM:
        sock.listen()
    listener = Listener(sock)
    try:
        yield listener
    finally:
        listener.close()


class Events(list[dict[str, Any]]):
    def emit(self, event: dict[str, Any]) -> None:
        self.append(event)

    def faults(self) -> list[str]:
        return [event["cause"] for event in self if event["kind"] == "fault"]


@contextlib.contextmanager
def guarded(*egress: str) -> Iterator[None]:
    """This process armed, with these destinations allowed and no other."""
    arm(dataclasses.replace(MINTER.trust("/nowhere"), egress=frozenset(egress)))
    try:
        yield
    finally:
        disarm()


@contextlib.contextmanager
def conversation(*egress: str) -> Iterator[Events]:
    events = Events()
    with guarded(*egress), bound(context_for()), recording(events):
        yield events


def raw(port: int) -> None:
    with contextlib.closing(_socket.socket(socket.AF_INET, socket.SOCK_STREAM)) as sock:
        sock.connect(("127.0.0.1", port))


def with_socket(use: Callable[[socket.socket], object], kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(socket.AF_INET, kind) as sock:
        use(sock)


def http_client(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    with contextlib.closing(connection):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"ok"


def urllib_request(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as response:
        assert response.read() == b"ok"


def requests_session(port: int) -> None:
    with requests.Session() as session:
        session.trust_env = False
        assert session.get(f"http://127.0.0.1:{port}/", timeout=10).text == "ok"


def httpx_client(port: int) -> None:
    with httpx.Client(trust_env=False) as client:
        assert client.get(f"http://127.0.0.1:{port}/").text == "ok"


def httpx2_client(port: int) -> None:
    with httpx2.Client(trust_env=False) as client:
        assert client.get(f"http://127.0.0.1:{port}/").text == "ok"


HTTP: dict[str, Callable[[int], None]] = {
    "http.client": http_client,
    "urllib": urllib_request,
    "requests": requests_session,
    "httpx": httpx_client,
    "httpx2": httpx2_client,
}
SYNC: dict[str, Callable[[int], None]] = {
    **HTTP,
    "connect": lambda port: with_socket(lambda sock: sock.connect(("127.0.0.1", port))),
    "connect_ex": lambda port: with_socket(lambda sock: sock.connect_ex(("127.0.0.1", port))),
    "connect-mapped": lambda port: socket.create_connection(("::ffff:127.0.0.1", port), 10).close(),
    "connect-any": lambda port: with_socket(lambda sock: sock.connect(("", port))),
    "connect-odd-spelling": lambda port: with_socket(lambda sock: sock.connect(("127.1", port))),
    "create_connection": lambda port: socket.create_connection(("127.0.0.1", port), 10).close(),
    "by-name": lambda port: socket.create_connection(("localhost", port), 10).close(),
    "_socket": raw,
    "smtplib": lambda port: smtplib.SMTP("127.0.0.1", port, timeout=10).close(),
    "psycopg": lambda port: psycopg.connect(f"host=127.0.0.1 port={port} user=u connect_timeout=10").close(),
    "fast-open": lambda port: with_socket(lambda sock: sock.sendto(b"x", 0x20000000, ("127.0.0.1", port))),
}


async def sock_connect(port: int) -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", port))


async def open_connection(port: int) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()


async def by_name(port: int) -> None:
    _, writer = await asyncio.open_connection("localhost", port)
    writer.close()


async def anyio_tcp(port: int) -> None:
    await (await anyio.connect_tcp("127.0.0.1", port)).aclose()


async def httpx_async(port: int) -> None:
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await client.get(f"http://127.0.0.1:{port}/")).text == "ok"


async def psycopg_async(port: int) -> None:
    await psycopg.AsyncConnection.connect(f"host=127.0.0.1 port={port} user=u connect_timeout=10")


ASYNC: dict[str, Callable[[int], Awaitable[None]]] = {
    "sock_connect": sock_connect,
    "open_connection": open_connection,
    "by-name": by_name,
    "anyio": anyio_tcp,
    "httpx": httpx_async,
    "asyncpg": lambda port: asyncpg.connect(host="127.0.0.1", port=port, user="u", database="d"),
    "psycopg": psycopg_async,
}


@pytest.mark.parametrize("client", SYNC)
def test_no_client_reaches_a_listener_and_each_attempt_is_a_fault_though_it_is_swallowed(client: str) -> None:
    with listening() as outside:
        with conversation() as events:
            with pytest.raises(EgressRefused) as caught:  # what an agent's own except would catch
                SYNC[client](outside.port)
            assert f":{outside.port} was refused" in str(caught.value)
            assert "allow" in str(caught.value)
            assert caught.value.port == outside.port
        assert events.faults() == ["egress"]
        assert outside.saw_nothing()


@pytest.mark.parametrize("client", ASYNC)
async def test_no_asynchronous_client_reaches_a_listener(client: str) -> None:
    with listening() as outside:
        with conversation() as events:
            with pytest.raises((EgressRefused, ExceptionGroup)) as caught:  # anyio connects in a task group
                await ASYNC[client](outside.port)
            assert cause_of(caught.value) == "egress"
        assert events.faults() == ["egress"]
        assert outside.saw_nothing()


@pytest.mark.parametrize("allowed", ["127.0.0.1:{port}", "127.0.0.1", "localhost:{port}"])
@pytest.mark.parametrize("client", [*HTTP, "connect", "create_connection", "_socket"])
def test_what_is_allowed_is_reached_as_ever(client: str, allowed: str) -> None:
    with listening() as outside, conversation(allowed.format(port=outside.port)) as events:
        SYNC[client](outside.port)
        assert events == []
        with socket.socket() as elsewhere, pytest.raises(EgressRefused):
            elsewhere.connect(("127.0.0.2", outside.port))
        if ":" in allowed:
            with pytest.raises(EgressRefused):
                SYNC[client](outside.port + 1)


@pytest.mark.parametrize("client", ["open_connection", "by-name", "anyio", "httpx", "sock_connect"])
async def test_what_is_allowed_by_name_is_reached_by_asynchronous_clients(client: str) -> None:
    with listening() as outside, conversation(f"localhost:{outside.port}") as events:
        await ASYNC[client](outside.port)
        assert events == []


def test_addresses_of_an_allowed_name_are_reached_after_it_was_looked_up_and_not_before() -> None:
    # The machine's own name is in its hosts file, or at its name server: a real look-up.
    name = socket.gethostname()
    address = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    with listening(at=(address, 0)) as outside, conversation(f"{name}:{outside.port}"):
        with pytest.raises(EgressRefused):
            socket.create_connection((str(address), outside.port), 10)
        socket.create_connection((name, outside.port), 10).close()
        socket.create_connection((str(address), outside.port), 10).close()


DATAGRAMS: dict[str, Callable[[socket.socket, Any], object]] = {
    "sendto": lambda sock, address: sock.sendto(b"x", address),
    "sendto-flags": lambda sock, address: sock.sendto(b"x", 0, address),
    "sendmsg": lambda sock, address: sock.sendmsg([b"x"], [], 0, address),
    "connect": lambda sock, address: sock.connect(address),
}


@pytest.mark.parametrize("way", DATAGRAMS)
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def test_no_datagram_leaves_and_an_allowed_one_does(way: str, family: int) -> None:
    with listening(family, socket.SOCK_DGRAM) as outside:
        with (
            conversation() as events,
            socket.socket(family, socket.SOCK_DGRAM) as sock,
            pytest.raises(EgressRefused),
        ):
            DATAGRAMS[way](sock, outside.address)
        assert events.faults() == ["egress"]
        assert outside.saw_nothing()
        host = f"[{outside.address[0]}]" if family == socket.AF_INET6 else outside.address[0]
        with conversation(f"{host}:{outside.port}"), socket.socket(family, socket.SOCK_DGRAM) as sock:
            DATAGRAMS[way](sock, outside.address)
            if way == "connect":
                sock.send(b"x")
            assert outside.heard.get(timeout=10) == b"x"


def test_no_datagram_endpoint_sends_to_what_is_not_allowed(caplog: pytest.LogCaptureFixture) -> None:
    class Client(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(exc)

    async def send(address: Any) -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(EgressRefused):
            await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=address)
        transport, client = await loop.create_datagram_endpoint(Client, local_addr=("127.0.0.1", 0))
        transport.sendto(b"x", address)
        assert isinstance(await client.lost, EgressRefused)

    with listening(kind=socket.SOCK_DGRAM) as outside:
        with conversation() as events:
            asyncio.run(send(outside.address))  # in a loop of its own, which logs what the loop is told
        assert events.faults() == ["egress", "egress"]
        assert outside.saw_nothing()
    assert "Fatal write error" in caplog.text


def test_ipv6_is_guarded_like_ipv4() -> None:
    with listening(socket.AF_INET6) as outside:
        with conversation() as events, pytest.raises(EgressRefused, match=r"to \[::1\]:\d+ was refused"):
            socket.create_connection(("::1", outside.port), 10)
        assert events.faults() == ["egress"]
        assert outside.saw_nothing()
        with conversation(f"[::1]:{outside.port}"):
            socket.create_connection(("::1", outside.port), 10).close()


async def test_unix_sockets_are_guarded_by_path(tmp_path: Path) -> None:
    paths = [str(tmp_path / "s"), f"\0redteam-{os.getpid()}-{id(tmp_path)}"]
    for path in paths:
        with listening(socket.AF_UNIX, at=path) as outside:
            with conversation() as events:
                with socket.socket(socket.AF_UNIX) as sock, pytest.raises(EgressRefused):
                    sock.connect(path)
                with pytest.raises(EgressRefused):
                    await asyncio.open_unix_connection(path)
            assert events.faults() == ["egress", "egress"]
            assert outside.saw_nothing()
    with listening(socket.AF_UNIX, at=str(tmp_path / "t")):
        for allowed in (str(tmp_path / "t"), str(tmp_path)):
            with conversation(allowed), socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(tmp_path / "t"))


LOOK_UPS: dict[str, Callable[[], object]] = {
    "getaddrinfo": lambda: socket.getaddrinfo(NOWHERE, 443),
    "getaddrinfo-bytes": lambda: socket.getaddrinfo(NOWHERE.encode(), "https"),
    "getaddrinfo-captured": lambda: captured_getaddrinfo(NOWHERE, 443),
    "gethostbyname": lambda: socket.gethostbyname(NOWHERE),
    "gethostbyname_ex": lambda: socket.gethostbyname_ex(NOWHERE),
    "gethostbyaddr": lambda: socket.gethostbyaddr("192.0.2.1"),
    "gethostbyaddr-name": lambda: socket.gethostbyaddr(NOWHERE),
    "getnameinfo": lambda: socket.getnameinfo(("192.0.2.1", 80), 0),
    "getfqdn": lambda: socket.getfqdn(NOWHERE),
    "connect": lambda: with_socket(lambda sock: sock.connect((NOWHERE, 443))),
    "connect_ex": lambda: with_socket(lambda sock: sock.connect_ex((NOWHERE, 443))),
    "bind": lambda: with_socket(lambda sock: sock.bind((NOWHERE, 0))),
    "sendto": lambda: with_socket(lambda sock: sock.sendto(b"x", (NOWHERE, 53)), socket.SOCK_DGRAM),
    "sendmsg": lambda: with_socket(
        lambda sock: sock.sendmsg([b"x"], [], 0, (NOWHERE, 53)), socket.SOCK_DGRAM
    ),
    "create_connection": lambda: socket.create_connection((NOWHERE, 443)),
    "smtplib": lambda: smtplib.SMTP(NOWHERE),
    "requests": lambda: requests.get(f"http://{NOWHERE}/", timeout=10),
    "psycopg": lambda: psycopg.connect(f"host={NOWHERE} connect_timeout=10"),
    "idna": lambda: socket.getaddrinfo("geheim-ü.invalid", 443),
}


@pytest.mark.parametrize("way", LOOK_UPS)
def test_name_that_is_not_allowed_is_not_even_looked_up(way: str) -> None:
    with conversation() as events, pytest.raises(EgressRefused):
        LOOK_UPS[way]()
    assert events.faults() == ["egress"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda loop: loop.getaddrinfo(NOWHERE, 443),
        lambda loop: loop.getnameinfo(("192.0.2.1", 80)),
        lambda loop: loop.create_connection(asyncio.Protocol, NOWHERE, 443),
        lambda loop: loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=(NOWHERE, 53)),
    ],
    ids=["getaddrinfo", "getnameinfo", "create_connection", "create_datagram_endpoint"],
)
async def test_event_loops_look_up_is_refused_in_the_task_that_asks_and_told_to_its_conversation(
    ask: Callable[[asyncio.AbstractEventLoop], Awaitable[object]],
) -> None:
    with conversation() as events, pytest.raises(EgressRefused):
        await ask(asyncio.get_running_loop())
    assert events.faults() == ["egress"]


def test_what_needs_no_question_to_anybody_may_be_looked_up() -> None:
    with conversation() as events:
        for host in ("127.0.0.1", "192.0.2.1", "::1", "localhost", None):
            assert socket.getaddrinfo(host, 80)
        assert socket.getfqdn()  # as smtplib says hello
        assert socket.gethostbyname("localhost") == "127.0.0.1"
        assert socket.getnameinfo(("127.0.0.1", 80), 0)
    assert events == []


def test_metadata_address_of_clouds_is_refused_in_every_spelling() -> None:
    for host in ("169.254.169.254", "::ffff:169.254.169.254", "fd00:ec2::254"):
        with conversation() as events, pytest.raises(EgressRefused):
            socket.create_connection((host, 80), 1)
        assert events.faults() == ["egress"]


def test_sockets_of_other_families_cannot_be_made() -> None:
    family = getattr(socket, "AF_VSOCK", None)
    if family is None:
        pytest.skip("this platform has no AF_VSOCK")
    with conversation() as events, pytest.raises(EgressRefused, match=f"a socket of family {family:d}"):
        socket.socket(family, socket.SOCK_STREAM)
    assert events.faults() == ["egress"]


def test_code_that_lost_its_context_is_refused_too_and_the_log_has_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caught: list[BaseException] = []

    def run(port: int) -> None:
        try:
            http_client(port)
        except BaseException as error:  # noqa: BLE001 - handed to the test
            caught.append(error)

    with listening() as outside:
        with conversation() as events:
            thread = threading.Thread(target=run, args=(outside.port,))
            thread.start()
            thread.join()
        assert isinstance(caught[0], EgressRefused)
        assert events == []  # whose it was cannot be known
        assert f":{outside.port} was refused" in caplog.text
        with guarded():  # and where none was ever bound
            run(outside.port)
        assert isinstance(caught[1], EgressRefused)
        assert outside.saw_nothing()


async def test_fork_and_collector_of_a_verified_context_are_reached_from_anywhere(server: Server) -> None:
    with listening() as collector:
        async with made_fork(server) as context:
            origin = f"http://127.0.0.1:{collector.port}"
            token = MINTER.mint(dataclasses.replace(context, collector=origin))
            trust = dataclasses.replace(
                MINTER.trust(context.host), egress=frozenset(), collectors=frozenset({origin})
            )
            arm(trust)
            try:
                with pytest.raises(EgressRefused):
                    http_client(collector.port)
                events = Events()
                with bind(token) as bound_context, recording(events):
                    assert await db.fetchval("SELECT current_database()") == context.database
                    await db.close_context(bound_context)
                    http_client(collector.port)
                # A pool of psycopg connects in a thread that knows of no context.
                async with await psycopg.AsyncConnection.connect(context.dsn()) as connection:
                    assert (await (await connection.execute("SELECT 1")).fetchone()) == (1,)
                arm(trust)  # keys are rotated: forks stay where they are
                http_client(collector.port)
            finally:
                disarm()
            assert events == []


def test_what_this_process_itself_serves_is_not_outside() -> None:
    with conversation() as events, socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        socket.create_connection(ours.getsockname(), 10).close()
        path = f"\0redteam-own-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as local, socket.socket(socket.AF_UNIX) as client:
            local.bind(path)
            local.listen()
            client.connect(path)
    assert events == []


def test_programs_are_started_and_recorded_by_name_without_their_arguments() -> None:
    async def start() -> None:
        process = await asyncio.create_subprocess_exec("true", "a secret")
        await process.wait()

    with conversation() as events:
        subprocess.run(["/bin/echo", "a secret"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run("echo a-secret", shell=True, check=True, stdout=subprocess.DEVNULL)  # noqa: S602
        os.system("true a-secret")  # noqa: S605
        os.waitpid(os.posix_spawn("/bin/true", ["true", "a secret"], {}), 0)
        asyncio.run(start())
    assert [(event["kind"], event["program"]) for event in events] == [
        ("subprocess", "/bin/echo"),
        ("subprocess", "/bin/sh"),
        ("subprocess", "true"),
        ("subprocess", "/bin/true"),
        ("subprocess", "true"),
    ]


CHILD = """
import socket, sys
from redteam_sdk import context
context.adopt()
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10)
except Exception as error:
    print(type(error).__name__)
"""


def test_python_child_that_adopts_its_context_is_guarded_and_any_other_is_not() -> None:
    def run(code: str, port: int) -> str:
        argv = [sys.executable, "-c", code, str(port)]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=50).stdout

    with listening() as outside, guarded():
        assert run(CHILD, outside.port) == "EgressRefused\n"
        # Said in the docs, and what deploy/egress is for: a child that does not ask is not seen.
        assert run(CHILD.replace("context.adopt()", ""), outside.port) == ""
        assert outside.heard.get(timeout=10) == b""


PRODUCTION = """
import socket, sys
before = dict(vars(socket.socket)), socket.getaddrinfo
hooks = []
sys.addaudithook(lambda event, args: hooks.append(event) if event == "sys.addaudithook" else None)
import redteam_sdk, psycopg
from redteam_sdk import context, db, external
assert context.resolve() is None
socket.create_connection(("127.0.0.1", int(sys.argv[1])), 10).close()
try:
    psycopg.connect(f"host=127.0.0.1 port={sys.argv[1]} user=u connect_timeout=10")
except psycopg.OperationalError:
    pass
assert (dict(vars(socket.socket)), socket.getaddrinfo) == before
assert not hasattr(psycopg.generators.connect, "__wrapped__")
assert not [name for name in sys.modules if name.startswith("redteam_sdk.egress")]
assert not hooks, hooks
print("reached")
"""


def test_production_has_no_hook_no_wrapper_and_not_even_the_module() -> None:
    with listening() as outside:
        argv = [sys.executable, "-c", PRODUCTION, str(outside.port)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
        assert (done.stdout, done.stderr) == ("reached\n", "")
        assert outside.heard.get(timeout=10) == b""


def test_disarmed_process_is_as_it_was() -> None:
    before = {name: vars(socket.socket).get(name) for name in ("connect", "connect_ex", "sendto", "bind")}
    functions = (socket.getaddrinfo, socket.gethostbyname, psycopg.generators.connect)
    with listening() as outside:
        with guarded(), guarded(), pytest.raises(EgressRefused):
            http_client(outside.port)
        http_client(outside.port)
    assert before == {name: vars(socket.socket).get(name) for name in before}
    assert (socket.getaddrinfo, socket.gethostbyname, psycopg.generators.connect) == functions


VETO = """
import sys
from redteam_sdk import context
from redteam_sdk.errors import EnvironmentFault, NoContext
from support.sdk import Minter

def veto(event, args):
    if event == "sys.addaudithook":
        raise RuntimeError("not here")

sys.addaudithook(veto)
try:
    context.arm(Minter().trust("/nowhere"))
except EnvironmentFault as error:
    print(error)
try:
    context.resolve()
except NoContext:
    print("no production either")
"""


def test_process_that_cannot_be_guarded_says_so_and_has_no_production() -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", VETO], capture_output=True, text=True, check=True, timeout=50, env=env
    )
    assert "could not be installed: another audit hook" in done.stdout
    assert "no production either" in done.stdout


def test_psycopg_is_guarded_where_its_environment_leads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with conversation() as events:
        for name, value in {
            "PGHOST": "192.0.2.1",
            "PGHOSTADDR": "192.0.2.2",
            "PGSERVICE": "production",
        }.items():
            with monkeypatch.context() as environment:
                environment.setenv(name, value)
                with pytest.raises(EgressRefused, match=value):
                    psycopg.connect("connect_timeout=10")
        with pytest.raises(EgressRefused, match=r"192\.0\.2\.9"):
            psycopg.connect("host=/nowhere,192.0.2.9 port=5432 connect_timeout=10 user=u")
    assert events.faults() == ["egress"] * 4


def test_armed_helper_of_other_tests_lets_them_talk_to_themselves() -> None:
    with listening() as outside, armed(MINTER, "/nowhere"):
        http_client(outside.port)


UVLOOP = """
import asyncio, os, socket, sys
from support.sdk import Minter, context_for
from redteam_sdk.context import arm, bound, disarm
from redteam_sdk.faults import cause_of
from redteam_sdk.record import recording
import dataclasses
port, allowed, late = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "late"
if not late:
    import uvloop
arm(dataclasses.replace(Minter().trust("/nowhere"), egress=frozenset({allowed})))
import httpx, uvloop

class Events(list):
    def emit(self, event):
        self.append((event["kind"], event.get("cause") or event.get("program")))

async def client():
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.get(f"http://127.0.0.1:{port}/")

async def main():
    loop, protocol, events = asyncio.get_running_loop(), asyncio.Protocol, Events()
    with bound(context_for()), recording(events):
        for way in (
            lambda: loop.create_connection(protocol, "127.0.0.1", port),
            lambda: loop.create_connection(protocol, host="localhost", port=port),
            lambda: loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=("127.0.0.1", port)),
            lambda: loop.create_unix_connection(protocol, "/nowhere/else"),
            lambda: loop.getaddrinfo("x.invalid", 80),
            lambda: loop.getnameinfo(("192.0.2.1", 80)),
            client,
        ):
            try:
                made = await way()
                print("reached")
                if isinstance(made, tuple):
                    made[0].close()
            except Exception as error:
                print(cause_of(error))
        await (await asyncio.create_subprocess_exec("true", "a secret")).wait()
    print(events[-1], len(events))

uvloop.run(main())
disarm()
assert not [name for name in vars(uvloop.Loop) if name.startswith("create_")]
"""


@pytest.mark.parametrize("imported", ["early", "late"])
def test_uvloop_is_guarded_whenever_it_is_imported(imported: str) -> None:
    pytest.importorskip("uvloop", reason="uvloop is not installed here")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with listening() as outside:
        told: dict[str, list[str]] = {}
        for allowed in ("192.0.2.77", f"localhost:{outside.port}"):
            argv = [sys.executable, "-c", UVLOOP, str(outside.port), allowed, imported]
            done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False, env=env)
            assert done.returncode == 0, done.stderr
            told[allowed] = done.stdout.splitlines()
            if allowed == "192.0.2.77":
                assert outside.saw_nothing()
    assert told["192.0.2.77"] == [*["egress"] * 7, "('subprocess', 'true') 8"]
    assert told[f"localhost:{outside.port}"] == [
        *("reached", "reached", "reached", "egress", "egress", "egress", "reached"),
        "('subprocess', 'true') 4",
    ]
