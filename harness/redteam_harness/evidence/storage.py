"""Writing evidence so that a crash, a full disk or a second writer cannot leave half a file."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from redteam_sdk.errors import EnvironmentFault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["EvidenceFault", "canonical", "json_text", "write_json", "write_text", "writing"]


class EvidenceFault(EnvironmentFault):
    """Evidence could not be written. Nothing can be reported from then on, so the launch ends."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a file system's refusal into a fault that names the path and the way out.

    Raises:
        EvidenceFault: the disk is full, the path is not writable, a file is in the way.
    """
    try:
        yield
    except OSError as error:
        raise EvidenceFault(
            f"evidence cannot be written to {path}: {error.strerror or error}; "
            "free some space there, or choose another place with --out DIR"
        ) from error


def json_text(value: Any, *, indent: int | None = None) -> str:
    """JSON that UTF-8 can hold: readable as it is, escaped where an agent said half a character."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return text if _is_encodable(text) else json.dumps(value, indent=indent)


def canonical(value: Any) -> str:
    """JSON with one possible spelling: sorted keys, no spaces, ASCII; what hashes are taken of."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_text(path: Path, text: str) -> None:
    """Write a whole file under a private name, sync it, and rename it into place.

    Raises:
        EvidenceFault: it could not be written; nothing is left under the final name.
    """
    private = path.with_name(f".{path.name}.{os.getpid()}.part")
    with writing(path):
        try:
            with private.open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            private.replace(path)
        except OSError:
            with suppress(OSError):
                private.unlink()
            raise


def write_json(path: Path, value: Any) -> None:
    """`write_text` of a value as readable JSON."""
    write_text(path, json_text(value, indent=1) + "\n")
