"""Which conversations and lines of a run a reviewer is shown: decided by a seed, so that it is repeatable."""

from __future__ import annotations

import hashlib
import random
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redteam_harness.evidence.journal import read_journal
from redteam_harness.launch.documents import read_document
from redteam_harness.registers.fidelity import Told
from redteam_personas import Disposition, Fact, Reveal, find_leaks, load_dispositions
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from redteam_harness.evidence.run import RunDirectory, StoredConversation

__all__ = ["MixedLine", "blind_mix", "manners", "read_real_lines", "sample", "told_in"]

_BROKEN = frozenset({"infra-fault", "sim-fault"})


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedLine:
    """One line of the blind mix.

    Attributes:
        text: the line.
        disposition: who said it in the run; None: a real person.
    """

    text: str
    disposition: str | None

    @property
    def key(self) -> str:
        """Names the line in a file of answers, which holds nothing that a real person wrote."""
        return hashlib.sha256(self.text.encode(errors="surrogatepass")).hexdigest()


def sample(run: RunDirectory, facts: Mapping[str, Any], *, per: int, seed: int) -> dict[str, list[str]]:
    """Disposition to ids of at most `per` conversations that came to their end.

    Raises:
        UsageError: none did.
        EnvironmentFault: the journal cannot be read.
    """
    disposition = {one["id"]: one["disposition"] for one in facts["plan"]}
    ended: dict[str, list[str]] = defaultdict(list)
    for entry in read_journal(run.journal):
        if entry["kind"] == "conversation_finished" and entry["outcome"] not in _BROKEN:
            name = entry["conversation"]
            ended[disposition[name]].append(name)
    if not ended:
        raise UsageError(f"no conversation of run {run.id} came to its end, so there is nobody to look at")
    return {
        name: sorted(_random(seed, name).sample(sorted(ids), min(per, len(ids))))
        for name, ids in sorted(ended.items())
    }


def read_real_lines(path: Path) -> list[str]:
    """What real people wrote, a line each, once each.

    Raises:
        UsageError: the file cannot be read, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"--lines {path} cannot be read: {reason}") from None
    lines = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
    if not lines:
        raise UsageError(f"--lines {path} is empty; it holds what real people wrote, one line each")
    return lines


def blind_mix(
    spoken: Sequence[tuple[str, str]], real: Sequence[str], *, most: int, seed: int
) -> list[MixedLine]:
    """As many lines of the run as of real people, shuffled. A line that both have is left out.

    Args:
        spoken: disposition and text of the run's user lines.
        real: lines of real people.
        most: how many of each at most.
        seed: decides which, and their order.
    """
    simulated = {" ".join(text.split()): disposition for disposition, text in spoken}
    written = [line for line in (" ".join(line.split()) for line in real) if line not in simulated]
    invented = [text for text in simulated if text not in set(real) and text]
    each = min(most, len(written), len(invented))
    chance = _random(seed, "lines")
    mixed = [MixedLine(text=text, disposition=None) for text in chance.sample(sorted(written), each)]
    mixed += [
        MixedLine(text=text, disposition=simulated[text]) for text in chance.sample(sorted(invented), each)
    ]
    chance.shuffle(mixed)
    return mixed


def manners(suite_folder: Path, digests: Mapping[str, str]) -> dict[str, str]:
    """How an actor was told to behave, by disposition, where its file is still the one that was played.

    Args:
        suite_folder: where the suite's own dispositions are.
        digests: of the files that were played.
    """
    known = load_dispositions()
    for name in digests:
        with suppress(UsageError):
            own = read_document(suite_folder / "dispositions" / f"{name}.yaml")
            known[name] = own.validate(Disposition, context={"name": name})
    return {
        name: known[name].manner
        for name, digest in digests.items()
        if name in known and known[name].digest == digest
    }


def told_in(stored: StoredConversation) -> tuple[Told, ...]:
    """When each held-back fact could be told and was first told, by the trace."""
    row: Mapping[str, str | None] = stored.about.get("row", {})
    revealed = {event["fact"]: int(event["turn"]) for event in stored.events if event["kind"] == "reveal"}
    found = []
    for name, rule in stored.about.get("facts", {}).items():
        value = row.get(name)
        if rule == "at once" or not value:
            continue
        fact = Fact(name=name, value=value, reveal=Reveal.parse(rule), asked_by=())
        turns = [
            int(event["turn"])
            for event in stored.events
            if event["kind"] == "user" and find_leaks(str(event["text"]), [fact])
        ]
        found.append(
            Told(fact=name, rule=rule, revealed=revealed.get(name), told=turns[0] if turns else None)
        )
    return tuple(found)


def _random(seed: int, what: str) -> random.Random:
    return random.Random(f"spot-check {seed} {what}")  # noqa: S311 - a sample, no secret
