"""SQL functions for the parts of two extensions that core covers, where a server lacks the extension.

Each file is put in the place of CREATE EXTENSION. What core cannot do is there too, and says so when it is
called.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

__all__ = ["LACKING", "one_line"]

# What each stand-in has no way to do, as a pattern of function names. Together with its name, this is the
# list of stand-ins.
LACKING = {
    "uuid-ossp": re.compile(r"uuid_generate_v5"),
    "pgcrypto": re.compile(r"crypt|gen_salt|(?:en|de)crypt(?:_iv)?|pgp_\w+|armor|dearmor"),
}


@cache
def one_line(name: str) -> str:
    """The SQL of a stand-in on one line, `{schema}` where its schema goes. Reads a file of this package."""
    text = files(__package__).joinpath(f"{name}.sql").read_text()
    return " ".join(line.strip() for line in text.splitlines() if not line.lstrip().startswith("--"))
