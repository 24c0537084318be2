"""Django: a database backend that decides at every use. `"ENGINE": "redteam_sdk.contrib.django"`.

It is Django's own PostgreSQL backend for production's settings. With a redteam context the connection is to
the fork, and no other context ever uses it.
"""

from __future__ import annotations
