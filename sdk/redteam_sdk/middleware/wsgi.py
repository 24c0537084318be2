"""For Flask, Django and every other WSGI application."""

from __future__ import annotations

import asyncio
import http
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from redteam_sdk.context import Context, bound
from redteam_sdk.middleware import FORBIDDEN, HEADER_NAME, admitted
from redteam_sdk.middleware.requests import WELL_KNOWN, answer, in_flight, recorded, reporter_for
from redteam_sdk.reporting import REQUEST_HEADER, Reporter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

__all__ = ["RedteamMiddleware"]

_VARIABLE = f"HTTP_{HEADER_NAME.upper().replace('-', '_')}"


class RedteamMiddleware:
    """Binds the context of each request that bears a token, until its response is closed.

    A server that is sent the header twice joins the values, which is no token: it is refused. The application
    does not see the header. `app.wsgi_app = RedteamMiddleware(app.wsgi_app)`.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self.app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve one request of the WSGI protocol."""
        if _VARIABLE not in environ:
            return self.app(environ, start_response)
        context = admitted([environ[_VARIABLE]], environ.get("REMOTE_ADDR"))
        if context is None:
            return _respond(start_response, 403, "text/plain; charset=utf-8", FORBIDDEN)
        if environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "") == WELL_KNOWN:
            status, body = asyncio.run(answer(environ["REQUEST_METHOD"], context))
            return _respond(start_response, status, "application/json", body)
        given = {name: value for name, value in environ.items() if name != _VARIABLE}
        serving = _Serving(context)
        try:
            with bound(context), recorded(serving.reporter):
                return _Body(self.app(given, serving.naming(start_response)), serving)
        except BaseException:
            serving.end()
            raise


def _respond(start_response: StartResponse, status: int, kind: str, body: bytes) -> list[bytes]:
    headers = [
        ("Content-Type", kind),
        ("Content-Length", str(len(body))),
        ("Cache-Control", "no-store"),
    ]
    start_response(f"{status} {http.HTTPStatus(status).phrase}", headers)
    return [body]


class _Serving:
    """One request from its beginning to the close of its response."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.reporter: Reporter | None = reporter_for(context)
        self._open = ExitStack()
        self._open.enter_context(in_flight(context))
        if self.reporter is not None:
            self._open.callback(self.reporter.close)

    def naming(self, start_response: StartResponse) -> StartResponse:
        """Have the response's head name the request."""
        if self.reporter is None:
            return start_response
        named = (REQUEST_HEADER, self.reporter.request)

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            return start_response(status, [*headers, named], *rest)

        return start

    def replied(self) -> None:
        """All of the response but its last part was sent: its events must be delivered before that."""
        if self.reporter is not None:
            self.reporter.replied().result()

    def end(self) -> None:
        """The response is closed. Safe to call again."""
        self._open.close()


class _Body:
    """A response whose every step runs with the context bound, and leaves none bound between the steps.

    Where events are reported it is one part behind the application: only so is the last part known as such.
    """

    def __init__(self, body: Iterable[bytes], serving: _Serving) -> None:
        self._body = body
        self._serving = serving
        self._steps: Iterator[bytes] | None = None
        self._ahead: list[bytes] = []

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._serving.reporter is None:
            return self._step()
        while True:
            try:
                self._ahead.append(self._step())
            except StopIteration:
                self._serving.replied()
                if not self._ahead:
                    raise
                return self._ahead.pop(0)
            if len(self._ahead) > 1:
                return self._ahead.pop(0)

    def close(self) -> None:
        close = getattr(self._body, "close", None)
        try:
            if close is not None:
                with bound(self._serving.context), recorded(self._serving.reporter):
                    close()
        finally:
            self._serving.end()

    def _step(self) -> bytes:
        with bound(self._serving.context), recorded(self._serving.reporter):
            if self._steps is None:
                self._steps = iter(self._body)
            return next(self._steps)
