"""Real servers for applications under test, each on a port of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from werkzeug.serving import make_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from wsgiref.types import WSGIApplication

__all__ = ["uvicorn_serving", "wsgi_serving"]


@contextlib.asynccontextmanager
async def uvicorn_serving(app: Any) -> AsyncIterator[str]:
    """A real uvicorn with an app on a port of its own."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: server.serve(sockets=[listening]))
        with anyio.fail_after(10):
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await anyio.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True


@contextlib.contextmanager
def wsgi_serving(app: WSGIApplication) -> Iterator[str]:
    """A real threaded WSGI server with an app."""
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
