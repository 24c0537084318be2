"""Keeps an armed process from connecting to anything but forks and what it was allowed.

`guard` sees what Python code does with sockets and names; `native` adds psycopg 3 and uvloop, which connect
in C; `destinations` decides. `context.arm` starts it, so a process that was never armed does not even load
it. What it cannot see is listed in docs/sdk.md, and is a network policy's to stop: deploy/egress.
"""

from __future__ import annotations
