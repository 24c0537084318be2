"""A fork's address in the forms in which code expects its database's: filled into the suite's templates."""

from __future__ import annotations

from string import Formatter
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from redteam_forker import Fork

__all__ = ["FIELDS", "addresses", "check_template"]

FIELDS = ("dsn", "user", "password", "host", "port", "database")
"""What a template may hold, in braces. On a Unix socket the host is the socket's directory."""


def check_template(template: str) -> str:
    """A template whose fields are all known.

    Raises:
        ValueError: one is not, or a brace is lonely.
    """
    for _, name, spec, conversion in Formatter().parse(template):
        if name is not None and (name not in FIELDS or spec or conversion):
            raise ValueError(
                f"{{{name}}} is not known in {template!r}; there are "
                f"{', '.join(f'{{{field}}}' for field in FIELDS)}, and {{{{ for a brace"
            )
    return template


def addresses(templates: Mapping[str, str], fork: Fork) -> dict[str, str]:
    """The variables with the fork's address in them. Secret: they hold its password.

    User, password and database are of characters that need no quoting in a URL; so is the host in its query,
    `...@/{database}?host={host}&port={port}`, which is right for sockets and for networks.
    """
    at = f"{fork.user}:{fork.password}@"
    if fork.host.startswith("/"):
        dsn = f"postgresql://{at}/{fork.database}?host={quote(fork.host)}&port={fork.port}"
    else:
        host = f"[{fork.host}]" if ":" in fork.host else fork.host
        dsn = f"postgresql://{at}{host}:{fork.port}/{fork.database}"
    facts = {
        "dsn": dsn,
        "user": fork.user,
        "password": fork.password,
        "host": fork.host,
        "port": str(fork.port),
        "database": fork.database,
    }
    return {name: template.format_map(facts) for name, template in templates.items()}
