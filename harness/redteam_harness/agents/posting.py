"""One HTTP request to an agent, and every way in which it may go wrong as an `AgentFault`.

A fault of the network or the service is ours, never the agent's verdict. Nothing of a response that is no
reply is quoted: an error page may hold what the request held.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import httpx2

from redteam_harness.agents.agent import AgentFault

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

__all__ = ["MAX_REPLY_BYTES", "Answer", "ask", "new_client"]

MAX_REPLY_BYTES = 8 * 2**20
_FORBIDDEN = 403


class Answer(NamedTuple):
    """A response with a status of success."""

    content: bytes
    headers: Mapping[str, str]


def new_client(verify: ssl.SSLContext) -> httpx2.AsyncClient:
    """A client for one conversation; what the service puts into cookies stays in that conversation.

    Redirects are not followed and no proxy of the environment is used: a request bears a token. Each turn has
    a connection of its own: one that is kept while a persona thinks may be closed by the service just then.

    Args:
        verify: shared by all clients of a launch; it takes long to make.
    """
    return httpx2.AsyncClient(
        follow_redirects=False,
        trust_env=False,
        timeout=None,
        limits=httpx2.Limits(max_keepalive_connections=0),
        verify=verify,
    )


async def ask(
    client: httpx2.AsyncClient,
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: Any = None,
    deadline_s: float,
) -> Answer:
    """Send a request and read its response.

    Args:
        client: from `new_client`.
        method: `POST` for a line.
        url: the service's.
        headers: beside the content's type and length.
        body: JSON-like; None sends none.
        deadline_s: for all of it, in seconds.

    Raises:
        AgentFault: `unreachable`, `hang`, `redirect`, `refused` (403), `status` or `too_large`.
    """
    content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
    sent = {"Accept": "application/json", **headers}
    if content is not None:
        sent["Content-Type"] = "application/json"
    try:
        with anyio.fail_after(deadline_s):
            async with client.stream(method, url, content=content, headers=sent) as response:
                _require_success(response)
                return Answer(await _read(response), response.headers)
    except TimeoutError:
        raise AgentFault("hang", f"the service did not answer within {deadline_s:g} s") from None
    except httpx2.ConnectError as error:
        raise AgentFault("unreachable", f"the service cannot be reached: {_reason(error)}") from None
    except httpx2.HTTPError as error:
        raise AgentFault("unreachable", f"the connection to the service broke: {_reason(error)}") from None


def _require_success(response: httpx2.Response) -> None:
    status = response.status_code
    if response.is_success:
        return
    if response.is_redirect:
        raise AgentFault(
            "redirect",
            f"the service answered {status}, a redirect, which is not followed because the request bears a "
            "token; name the final address",
        )
    if status == _FORBIDDEN:
        raise AgentFault(
            "refused",
            "the service answered 403; if that is the SDK's middleware, the service's log says what of the "
            "token it does not trust, and `redteam trust SUITE` prints the trust that it needs",
        )
    raise AgentFault("status", f"the service answered {status} {response.reason_phrase}".rstrip())


async def _read(response: httpx2.Response) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_REPLY_BYTES:
            raise AgentFault("too_large", f"the response is longer than {MAX_REPLY_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _reason(error: httpx2.HTTPError) -> str:
    # Its text may name addresses and files of a proxy or a certificate, and never a header.
    return str(error) or type(error).__name__
