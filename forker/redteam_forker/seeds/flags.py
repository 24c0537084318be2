"""What a seed may be allowed by name, and what that does. The names are promises: suites hold them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FLAGS", "way_by_flag"]

FLAGS: Mapping[str, str] = {
    "c-function": "functions in C from a library that is not one of the server's own",
    "copy-program": "COPY from or to a program, which the server runs",
    "cron": "pg_cron, its rows and its calls: jobs that the server runs later",
    "dblink": "dblink: connections from inside a query",
    "event-trigger": "event triggers on login, which run at each login to each fork",
    "foreign-server": "foreign data wrappers, servers and tables, and the extensions *_fdw",
    "missing-extension": "extensions that the server lacks are left out instead of refused",
    "network-extension": "extensions that call other systems (http, pg_net, aws_s3 ...), and their calls",
    "server-file": "COPY with a file on the server, and functions that read or write its files",
    "subscription": "statements about subscriptions are left out instead of refused",
    "untrusted-language": "languages whose code can do on the server what the server can",
    "user-mapping": "user mappings, which hold passwords of other systems",
}


def way_by_flag(flag: str | None) -> str:
    """The end of a refusal: how to allow it, if that can be done."""
    if flag is None:
        return ""
    assert flag in FLAGS
    verb = "leave it out" if "left out" in FLAGS[flag] else "allow it"
    return f", or {verb} with seed.allow: [{flag}]"
