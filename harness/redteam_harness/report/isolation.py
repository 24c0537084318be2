"""How far a run's conversations were isolated, counted from what was attested of each. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from redteam_harness.registers.degraded import degraded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.registers.degraded import Degraded

__all__ = ["attestation_counts", "attestation_lines", "degraded_lines"]

_SHOWN = 5


def attestation_counts(records: Iterable[tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """What `report.json` says under `attestation`.

    Args:
        records: every finished conversation's id and attestation; None: it has none.
    """
    named = list(records)
    attested = [record for _, record in named if record is not None]
    forked = [record for record in attested if record["fork"] is not None]
    lacking: defaultdict[Degraded, list[str]] = defaultdict(list)
    for name, record in named:
        for one in degraded(record):
            lacking[one].append(name)
    backends = Counter(_backend(record) for record in forked)
    return {
        "conversations": len(named),
        "attested": len(attested),
        "forked": len(forked),
        "backends": [{"name": name, "conversations": count} for name, count in sorted(backends.items())],
        "dropped": sum(_is_gone(record) for record in forked),
        "kept": sum(record["kept"] for record in forked),
        "guarded": sum(record["egress"]["guard"] is not None for record in forked),
        "refused": sum(record["egress"]["refused"] for record in forked),
        "mock_misses": sum(len(record["mock_misses"]) for record in forked),
        "degraded": [
            {"code": one.code, "message": one.message, "conversations": names}
            for one, names in sorted(lacking.items())
        ],
    }


def _backend(record: Mapping[str, Any]) -> str:
    server = record["server"]
    files = f" on {server['file_system']}" if server["file_system"] else ""
    return f"{server['kind']} PostgreSQL {server['version']}, copied by {record['fork']['copied_by']}{files}"


def _is_gone(record: Mapping[str, Any]) -> bool:
    return record["drop"] is not None and record["drop"]["catalog_shows"] == []


def attestation_lines(counts: Mapping[str, Any]) -> list[str]:
    """What a reader is told: a line of what was attested, and one for each thing that lacked."""
    told = []
    if counts["forked"]:
        backends = "; ".join(one["name"] for one in counts["backends"])
        kept = f", {counts['kept']} kept" if counts["kept"] else ""
        told.append(
            f"{counts['forked']} of {counts['conversations']} on a fork of its own ({backends}); "
            f"{counts['dropped']} gone from the catalog{kept}"
        )
        misses = counts["mock_misses"]
        missed = f"; {misses} external {'call' if misses == 1 else 'calls'} without a mock" if misses else ""
        told.append(f"egress guard in {counts['guarded']}, {counts['refused']} connections refused{missed}")
    return [*told, *degraded_lines(counts)]


def degraded_lines(counts: Mapping[str, Any]) -> list[str]:
    """A line for each thing that a conversation's isolation lacked."""
    return [
        f"degraded: {one['message']} ({one['code']}, {_which(one['conversations'], counts['conversations'])})"
        for one in counts["degraded"]
    ]


def _which(names: Sequence[str], of: int) -> str:
    if len(names) == of:
        return "all"
    return ", ".join(names) if len(names) <= _SHOWN else f"{len(names)} of {of}"
