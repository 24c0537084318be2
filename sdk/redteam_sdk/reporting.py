"""Reports what tools do to the harness's collector, from a service that the harness does not start.

One reporter for each request, in a thread of its own that lives from the first event to the end of the
request, so nothing waits for the network but the end of the reply. docs/sdk.md has the protocol.
"""

from __future__ import annotations

import http.client
import itertools
import json
import logging
import secrets
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from redteam_sdk.context import bound
from redteam_sdk.errors import ContextError
from redteam_sdk.redact import STRUCK, spellings

if TYPE_CHECKING:
    from redteam_sdk.claims import Context

__all__ = ["EVENTS_PATH", "REPORT_VERSION", "REQUEST_HEADER", "Reporter"]

REPORT_VERSION = 1
EVENTS_PATH = "/v1/events"
REQUEST_HEADER = "Redteam-Request"

_TIMEOUT_S = 5.0
_ATTEMPTS = 2
_BATCH_BYTES = 256 * 1024
# What a collector takes in one request at least; a single event may be as long as that.
_MAX_BYTES = 16 * 1024 * 1024

_log = logging.getLogger(__name__)


class Reporter:
    """Sends the events of one request, in order and each once, or none after the first that is lost.

    Any thread may call it. What cannot be delivered is a warning in the log of the service; the harness
    notices by itself, because the report that ends the reply is missing or follows a gap.

    Args:
        context: whose collector it is; its token is what the collector knows us by.

    Attributes:
        request: names the request; the reply's header says it.
        calls: numbers for its tool calls.
    """

    def __init__(self, context: Context) -> None:
        assert context.collector is not None
        self.request = secrets.token_hex(8)
        self.calls = itertools.count(1)
        self._context = context
        self._collector = urlsplit(context.collector)
        self._struck = spellings(context.password)
        # Guards everything below.
        self._changed = threading.Condition()
        self._waiting: list[bytes] = []
        self._sent = 0
        self._replying: Future[bool] | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._lost = False

    def emit(self, event: dict[str, Any]) -> None:
        """Take an event; the secret of the fork is struck out of it."""
        text = json.dumps(event, ensure_ascii=False, separators=(",", ":"), default=str)
        for spelling in self._struck:
            text = text.replace(spelling, STRUCK)
        with self._changed:
            self._waiting.append(text.encode(errors="replace"))
            self._wake()

    def replied(self) -> Future[bool]:
        """Called before the last byte of the reply: done once all events until now are delivered, or lost.

        It is done within a few seconds, whatever the collector does.
        """
        with self._changed:
            if self._replying is None:
                self._replying = Future()
                self._wake()
            return self._replying

    def close(self) -> None:
        """The request is over: what still waits is sent, and the thread ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _wake(self) -> None:
        if self._thread is None:
            name = f"redteam-report-{self.request}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._changed.notify()

    def _run(self) -> None:
        connection: http.client.HTTPConnection | None = None
        try:
            while (taken := self._take()) is not None:
                batch, first, replying = taken
                if not self._lost:
                    connection = connection or self._connection()
                    self._lost = not self._deliver(connection, batch, first, replied=replying is not None)
                if replying is not None:
                    replying.set_result(not self._lost)
        finally:
            if connection is not None:
                connection.close()

    def _take(self) -> tuple[list[bytes], int, Future[bool] | None] | None:
        """The next batch, waited for; None once the request is over and nothing waits."""
        with self._changed:
            while not self._waiting and (self._replying is None or self._replying.done()):
                if self._closed:
                    self._thread = None  # an event that comes later, of a task left behind, starts another
                    return None
                self._changed.wait()
            count = size = 0
            while count < len(self._waiting) and (not count or size < _BATCH_BYTES):
                size += len(self._waiting[count])
                count += 1
            batch, self._waiting = self._waiting[:count], self._waiting[count:]
            first, self._sent = self._sent, self._sent + count
            replying = self._replying if not self._waiting else None
            return batch, first, replying if replying is not None and not replying.done() else None

    def _connection(self) -> http.client.HTTPConnection:
        where = self._collector
        assert where.hostname is not None
        kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
        return kind(where.hostname, where.port, timeout=_TIMEOUT_S)

    def _deliver(
        self, connection: http.client.HTTPConnection, batch: list[bytes], first: int, *, replied: bool
    ) -> bool:
        head = {"version": REPORT_VERSION, "request": self.request, "first": first, "replied": replied}
        body = b"".join((json.dumps(head)[:-1].encode(), b', "events": [', b",".join(batch), b"]}"))
        reason = f"the report is longer than {_MAX_BYTES} bytes" if len(body) > _MAX_BYTES else ""
        for _ in range(0 if reason else _ATTEMPTS):
            try:
                # Bound, so that the egress guard knows whose collector this is.
                with bound(self._context):
                    connection.request("POST", EVENTS_PATH, body, self._headers())
                    with connection.getresponse() as response:
                        response.read()
            except TimeoutError:
                reason = f"no answer within {_TIMEOUT_S:g} s"
                break
            except (OSError, http.client.HTTPException) as error:
                # A connection that was kept too long; saying it twice does no harm, reports have numbers.
                reason = type(error).__name__
                connection.close()
            except ContextError as error:
                reason = str(error)
                break
            else:
                if response.status == http.client.NO_CONTENT:
                    return True
                reason = f"status {response.status}"
                break
        with suppress(OSError):
            connection.close()
        _log.warning(
            "events of conversation %r are lost: collector %s: %s",
            self._context.conversation,
            self._context.collector,
            reason,
        )
        return False

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._context.token}", "Content-Type": "application/json"}
