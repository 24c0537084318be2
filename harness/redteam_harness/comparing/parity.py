"""Whether two runs may be compared: the same people with the same wants, before the same judges. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["MEANINGS", "check_parity", "comparable_parts", "differences"]

MEANINGS: Mapping[str, str] = {
    "seeds": "the data that forks begin with",
    "role": "the role whose rights the tools have",
    "plan": "who comes with what: cast, cases, dispositions, their number or their draw",
    "repeat": "how often each is held",
    "cases": "what the cases say",
    "dispositions": "how personas behave",
    "rules": "the rules",
    "compare": "which differences of columns count",
    "collateral": "what the collateral gate looks at",
    "turns": "how many turns there may be",
    "actor": "who plays the personas",
    "actor_prompt": "how the model that plays them is instructed",
    "judge": "the model that judges",
    "judge_prompts": "what the judge is asked",
    "redteam": "the version of redteam",
    "lines": "whose lines the personas say: their own, or recorded ones",
}
"""Every part in which two runs must be alike, and what it stands for."""
_FROZEN_LEVEL = 2


def comparable_parts(
    base: Mapping[str, Any], candidate: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of two runs that must be alike: their comparability, and whose lines were said in them.

    A replay of level 2 says the lines of the run that it replays, so it pairs with that run and with other
    replays of it. With a third run it shares the plan and not a single line.

    Args:
        base: run.json of the one run.
        candidate: of the other.
    """
    recorded = {_recorded(facts) for facts in (base, candidate)}

    def parts(facts: Mapping[str, Any]) -> dict[str, Any]:
        said = _recorded(facts) or (facts["run"] if facts["run"] in recorded else None)
        lines = "their own" if said is None else f"those of {said}"
        return {**facts["comparability"], "lines": lines}

    return parts(base), parts(candidate)


def _recorded(facts: Mapping[str, Any]) -> str | None:
    about = facts.get("replay") or {}
    return about["of"] if about.get("level") == _FROZEN_LEVEL else None


def differences(base: Mapping[str, Any], candidate: Mapping[str, Any]) -> dict[str, str]:
    """The parts of two `comparability` blocks that differ, by name, and how.

    Args:
        base: run.json's `comparability` of the one run, or its comparable parts.
        candidate: of the other.
    """
    found: dict[str, str] = {}
    for name in sorted({*base, *candidate} - {"key"}):
        if base.get(name) != candidate.get(name):
            found[name] = _how(base.get(name), candidate.get(name))
    return found


def check_parity(
    base: Mapping[str, Any], candidate: Mapping[str, Any], *, allowed: Collection[str]
) -> list[str]:
    """Refuse two runs that differ in what must be the same; returns the differences that were allowed.

    Raises:
        UsageError: they differ in a part that is not allowed by name; or a part is allowed that there is not.
    """
    unknown = sorted(set(allowed) - {*base, *candidate, *MEANINGS})
    if unknown:
        raise UsageError(
            f"--allow {unknown[0]}: there is no such part; the parts are {', '.join(sorted(MEANINGS))}"
        )
    found = differences(base, candidate)
    refused = {name: how for name, how in found.items() if name not in allowed}
    if refused:
        lines = [f"  {name:<14}{MEANINGS.get(name, '')}{how}" for name, how in refused.items()]
        names = " ".join(f"--allow {name}" for name in refused)
        raise UsageError(
            "the runs cannot be compared, because they are not of the same:\n"
            + "\n".join(lines)
            + f"\nLaunch one of them anew; or if that is meant: {names}"
        )
    return [name for name in found if name in allowed]


def _how(base: object, candidate: object) -> str:
    shown = [
        value if isinstance(value, str | int | float | bool | None) else ... for value in (base, candidate)
    ]
    if ... in shown or any(len(str(value)) > 40 for value in shown):
        return ""
    return f": {_word(base)}, then {_word(candidate)}"


def _word(value: object) -> str:
    return "none" if value is None else str(value)
