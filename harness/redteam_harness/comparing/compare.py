"""Compares a candidate with a base, conversation by conversation. Pure.

Both were held with the same personas, wants and rules, so they are paired: what differs is the agent, and
chance. The verdict needs an effect that was stated before, so that a large run cannot make much of nothing,
nor a small one nothing of much.

    a severity-1 failure that the base did not have ─► regressed, whatever the rate says
    significant, and at least the stated effect     ─► improved, regressed
    the interval lies within the stated effect      ─► unchanged
    anything else                                   ─► inconclusive
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from redteam_harness.report.changed import finding_lines
from redteam_rubrics.statistics import holm, mcnemar, paired_difference
from redteam_rubrics.statistics.bootstrap import difference_bootstrap
from redteam_rubrics.statistics.pairs import Pairs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.report.summary import Finished, Summary
    from redteam_rubrics.statistics import Difference, Interval, McNemar

__all__ = ["Comparison", "Discordant", "Result", "Stated", "compare"]

Result = Literal["improved", "regressed", "unchanged", "inconclusive"]
_VERDICTS = frozenset({"pass", "fail"})
_Key = tuple[str, str, str, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stated:
    """What was said before of what counts.

    Attributes:
        min_effect: the smallest difference of the pass rates that matters, as a share of 1.
        alpha: how often two runs of the same agent may be called different.
        before: whether it was in the suite when the candidate ran; False: it was said afterwards.
    """

    min_effect: float
    alpha: float
    before: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Discordant:
    """A pair of which one passed and the other failed.

    Attributes:
        case, persona, disposition: of both.
        base, candidate: the two conversations' ids.
        better: the candidate passed.
        rules: the rules that the failing one broke, the gravest first.
        text: what made it fail, in a sentence; empty where nobody could say.
    """

    case: str
    persona: str
    disposition: str
    base: str
    candidate: str
    better: bool
    rules: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One rule over the pairs in which it judged both.

    Attributes:
        pairs: as of conversations.
        p: of McNemar's exact test.
        p_adjusted: the same by Holm, over all rules that differ anywhere.
    """

    rule: str
    severity: int
    pairs: Pairs
    p: float
    p_adjusted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What came of it.

    Attributes:
        base, candidate: the runs' ids.
        result: the verdict.
        reasons: why, a sentence each.
        stated: what was to be found.
        pairs: of conversations that both runs judged.
        test: McNemar's; None without pairs.
        difference: of the pass rates, candidate less base, with its interval; None without pairs.
        bootstrap: the interval of the same by drawing whole personas anew; None where it says nothing.
        clusters: how many of case and persona there are among the pairs.
        excluded: how many planned conversations are in no pair, by the name of why.
        severity_1: failures of severity 1 that are new: conversation, rule and sentence.
        healed: failures of severity 1 that only the base has, likewise.
        discordant: the pairs that differ, those that got worse first.
        rules: every rule that differs in a pair.
        allowed: parts in which the runs differ although they should not, allowed by name.
    """

    base: str
    candidate: str
    result: Result
    reasons: tuple[str, ...]
    stated: Stated
    pairs: Pairs
    test: McNemar | None
    difference: Difference | None
    bootstrap: Interval | None
    clusters: int
    excluded: Mapping[str, int]
    severity_1: tuple[Mapping[str, str], ...]
    healed: tuple[Mapping[str, str], ...]
    discordant: tuple[Discordant, ...]
    rules: tuple[RuleChange, ...]
    allowed: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """As JSON-like data; shares are of 1."""
        return {
            "version": 1,
            "base": self.base,
            "candidate": self.candidate,
            "result": self.result,
            "reasons": list(self.reasons),
            "stated": asdict(self.stated),
            "pairs": self.pairs._asdict(),
            "test": None if self.test is None else self.test._asdict(),
            "difference": None if self.difference is None else self.difference._asdict(),
            "bootstrap": None if self.bootstrap is None else self.bootstrap._asdict(),
            "clusters": self.clusters,
            "excluded": dict(sorted(self.excluded.items())),
            "severity_1": [dict(one) for one in self.severity_1],
            "healed": [dict(one) for one in self.healed],
            "discordant": [asdict(one) for one in self.discordant],
            "rules": [{**asdict(one), "pairs": one.pairs._asdict()} for one in self.rules],
            "allowed": list(self.allowed),
        }


def compare(base: Summary, candidate: Summary, stated: Stated, *, allowed: Sequence[str] = ()) -> Comparison:
    """Pair two runs and say whether the candidate is better.

    Args:
        base: what the one run found.
        candidate: what the other did.
        stated: what counts as a difference.
        allowed: parts in which they differ, allowed by name.
    """
    held, alike = _by_key(base.finished), _by_key(candidate.finished)
    paired = {
        key: (held[key], alike[key])
        for key in held
        if key in alike and {held[key].outcome, alike[key].outcome} <= _VERDICTS
    }
    pairs = _count((one.outcome == "pass", other.outcome == "pass") for one, other in paired.values())
    clusters: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for key, (one, other) in paired.items():
        cluster = clusters[key[:2]]
        cluster[0] += (other.outcome == "pass") - (one.outcome == "pass")
        cluster[1] += 1
    test = mcnemar(pairs) if pairs.n else None
    difference = paired_difference(pairs, 1 - stated.alpha)
    bootstrap = difference_bootstrap([(gain, n) for gain, n in clusters.values()], 1 - stated.alpha)
    new = _severity_1(alike, held)
    result, reasons = _decide(
        stated, pairs, test, difference, bootstrap, new, is_clustered=len(clusters) < pairs.n
    )
    return Comparison(
        base=base.run,
        candidate=candidate.run,
        result=result,
        reasons=tuple(reasons),
        stated=stated,
        pairs=pairs,
        test=test,
        difference=difference,
        bootstrap=bootstrap,
        clusters=len(clusters),
        excluded=_excluded(held, alike, base, candidate),
        severity_1=tuple(new),
        healed=tuple(_severity_1(held, alike)),
        discordant=tuple(_discordant(paired.values())),
        rules=tuple(_rules(paired.values())),
        allowed=tuple(allowed),
    )


def _by_key(finished: Iterable[Finished]) -> dict[_Key, Finished]:
    """Conversations by who came with what; the nth time that the same comes is another."""
    seen: Counter[tuple[str, str, str, int]] = Counter()
    found: dict[_Key, Finished] = {}
    for one in finished:
        who = (one.case, one.persona, one.disposition, one.repetition)
        seen[who] += 1
        found[*who, seen[who]] = one
    return found


def _count(passed: Iterable[tuple[bool, bool]]) -> Pairs:
    counts = Counter(passed)
    return Pairs(
        both=counts[True, True],
        regressed=counts[True, False],
        improved=counts[False, True],
        neither=counts[False, False],
    )


def _decide(
    stated: Stated,
    pairs: Pairs,
    test: McNemar | None,
    difference: Difference | None,
    bootstrap: Interval | None,
    new: Sequence[Mapping[str, str]],
    *,
    is_clustered: bool,
) -> tuple[Result, list[str]]:
    if new:
        rules = ", ".join(sorted({one["rule"] for one in new}))
        return "regressed", [
            f"{len(new)} severity-1 {'failure is' if len(new) == 1 else 'failures are'} new: {rules}"
        ]
    if test is None or difference is None:
        return "inconclusive", ["no conversation was judged in both runs, so nothing is known"]
    size, effect = abs(difference.difference), stated.min_effect
    found = f"the pass rate changed by {100 * difference.difference:+.1f} points (p = {test.p:.3g})"
    if test.p < stated.alpha and size >= effect:
        if is_clustered and bootstrap is not None and bootstrap.low <= 0 <= bootstrap.high:
            return "inconclusive", [
                f"{found}, but it comes from few personas: over whole personas the interval holds 0"
            ]
        return ("improved" if difference.difference > 0 else "regressed"), [found]
    if -effect < difference.low and difference.high < effect:
        return "unchanged", [f"no change of {100 * effect:g} points or more is plausible"]
    if test.p < stated.alpha:
        return "inconclusive", [f"{found}, less than the {100 * effect:g} points that were stated to matter"]
    return "inconclusive", [
        f"{found}: {pairs.n} pairs, of which {pairs.improved + pairs.regressed} differ, cannot tell a change "
        f"of {100 * effect:g} points from chance; `redteam power` says how many can"
    ]


def _excluded(
    held: Mapping[_Key, Finished], alike: Mapping[_Key, Finished], base: Summary, candidate: Summary
) -> Counter[str]:
    why: Counter[str] = Counter()
    for key in {*held, *alike}:
        one, other = held.get(key), alike.get(key)
        if one is None or other is None:
            why["only in the base" if other is None else "only in the candidate"] += 1
        elif one.outcome not in _VERDICTS or other.outcome not in _VERDICTS:
            sides = [
                f"{side}: {found.outcome}"
                for side, found in (("base", one), ("candidate", other))
                if found.outcome not in _VERDICTS
            ]
            why["; ".join(sides)] += 1
    missing = {"base": base.unfinished, "candidate": candidate.unfinished}
    why.update({f"{side}: not finished": count for side, count in missing.items() if count})
    return why


def _severity_1(mine: Mapping[_Key, Finished], others: Mapping[_Key, Finished]) -> list[dict[str, str]]:
    """Failures of severity 1 in `mine` that the same conversation of `others` does not have."""
    found = []
    for key, one in mine.items():
        other = others.get(key)
        known = {str(verdict["rule"]) for verdict in (other.broken if other is not None else ())}
        found += [
            {"conversation": one.id, "rule": str(verdict["rule"]), "text": finding_lines(verdict)[0]}
            for verdict in one.broken
            if verdict["severity"] == 1 and str(verdict["rule"]) not in known
        ]
    return found


def _discordant(paired: Iterable[tuple[Finished, Finished]]) -> list[Discordant]:
    found = [
        Discordant(
            case=one.case,
            persona=one.persona,
            disposition=one.disposition,
            base=one.id,
            candidate=other.id,
            better=other.outcome == "pass",
            rules=tuple(str(verdict["rule"]) for verdict in (*one.broken, *other.broken)),
            text=_text(one if other.outcome == "pass" else other),
        )
        for one, other in paired
        if one.outcome != other.outcome
    ]
    return sorted(found, key=lambda one: (one.better, one.candidate))


def _text(one: Finished) -> str:
    return str(one.attribution["text"]) if one.attribution else ""


def _rules(paired: Iterable[tuple[Finished, Finished]]) -> list[RuleChange]:
    passed: defaultdict[tuple[int, str], list[tuple[bool, bool]]] = defaultdict(list)
    for one, other in paired:
        before = {str(verdict["rule"]): verdict for verdict in one.verdicts}
        for verdict in other.verdicts:
            rule = str(verdict["rule"])
            statuses = (before.get(rule, {}).get("status"), verdict["status"])
            if set(statuses) <= _VERDICTS:
                first, second = statuses
                passed[int(verdict["severity"]), rule].append((first == "pass", second == "pass"))
    counted = {name: _count(each) for name, each in sorted(passed.items())}
    counted = {name: pairs for name, pairs in counted.items() if pairs.improved or pairs.regressed}
    p_values = {name: mcnemar(pairs).p for name, pairs in counted.items()}
    adjusted = holm(p_values)
    return [
        RuleChange(rule=name[1], severity=name[0], pairs=pairs, p=p_values[name], p_adjusted=adjusted[name])
        for name, pairs in counted.items()
    ]
