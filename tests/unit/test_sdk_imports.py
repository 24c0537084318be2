"""What the SDK brings into a production process: three packages, no look at the environment."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys

import pytest

import redteam_sdk

_PROBE = """
import json, os, socket, sys
import asyncpg, asyncio, logging  # whatever these read is their own affair
socket.socket = None
before = set(sys.modules)
os.environ = os.getenv = None
import redteam_sdk
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=50
    )
    return done.stdout


def test_everything_in_the_sdk_imports_asyncpg_pyjwt_cryptography_and_the_standard_library_only() -> None:
    code = """
import json, pkgutil, sys, importlib, redteam_sdk
for module in pkgutil.walk_packages(redteam_sdk.__path__, "redteam_sdk."):
    if not module.name.startswith("redteam_sdk.contrib."):
        importlib.import_module(module.name)
import jwt.algorithms, cryptography.hazmat.primitives.serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
    found = set(json.loads(run(code)))
    assert {name for name in found if name.startswith("redteam_")} == {"redteam_sdk"}
    owners = importlib.metadata.packages_distributions()
    distributions = {owner.lower() for name in found for owner in owners.get(name, [])}
    # cffi is how cryptography calls OpenSSL; setuptools hooks into every start of an old virtual environment.
    assert distributions - {"cffi", "setuptools"} <= {"redteam-sdk", "asyncpg", "pyjwt", "cryptography"}


@pytest.mark.parametrize("name", ["sqlalchemy", "psycopg", "django.base"])
def test_contrib_says_which_package_it_lacks(name: str) -> None:
    code = f"""
import sys
for package in ("sqlalchemy", "psycopg", "psycopg_pool", "django"):
    sys.modules[package] = None
import redteam_sdk.contrib
try:
    import redteam_sdk.contrib.{name}
except ImportError as error:
    print(error)
"""
    assert name.partition(".")[0] in run(code)


def test_importing_the_sdk_reads_no_environment_and_opens_no_socket() -> None:
    added = json.loads(run(_PROBE))
    assert "redteam_sdk" in added


def test_production_that_never_sees_a_token_loads_no_cryptography() -> None:
    assert not {"jwt", "cryptography"} & set(json.loads(run(_PROBE)))


def test_public_names_are_exactly_the_listed_ones() -> None:
    assert redteam_sdk.__all__ == sorted(redteam_sdk.__all__)
    assert all(hasattr(redteam_sdk, name) for name in redteam_sdk.__all__)
    assert {"carry", "db", "external", "tool", "context", "Session", "__version__"} <= set(
        redteam_sdk.__all__
    )
