"""Finds the places of rows that may differ: in which pages of which tables, and how that is known."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redteam_forker.changes import pages, scan
from redteam_forker.changes.catalog import UPKEEP
from redteam_forker.changes.pairing import shape_of
from redteam_forker.changes.scan import Span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_forker.changes.catalog import Part, Table
    from redteam_forker.changes.facts import Baseline, Facts
    from redteam_forker.changes.pages import HeapMaps
    from redteam_forker.changes.pairing import Shape
    from redteam_forker.changes.scan import Epoch, Places
    from redteam_forker.changes.snapshot import Snapshot

__all__ = ["Candidates", "Search", "common_key"]

# So many pages are compared by their stamps without asking whether there was a VACUUM.
_ALWAYS_COMPARED = 256


@dataclass(kw_only=True)
class Candidates:
    """One table of which some pages may hold changes.

    Attributes:
        then: it, as the baseline has it.
        now: it, as the fork has it.
        why: why its pages were not told by the visibility map, if they were not.
        spans: which pages to read.
        key: by what its rows are matched, as attribute numbers.
        places: what is in the pages, span by span.
        history: its number in the history of versions; None: it is not in there.
    """

    then: Table
    now: Table
    why: str | None
    spans: list[Span]
    key: tuple[int, ...]
    places: list[Places] = field(default_factory=list)
    history: int | None = None

    @functools.cached_property
    def shape(self) -> Shape:
        """How the rows of both sides relate."""
        return shape_of(self.then.columns, self.now.columns, self.key)

    @property
    def candidates(self) -> int:
        """How many rows of both sides to read."""
        return sum(found.candidates for found in self.places)


@dataclass(slots=True, kw_only=True)
class Search:
    """Where to look, and what is known.

    Attributes:
        version_num: of the server.
        here: the baseline.
        there: the fork.
        facts: of the baseline.
        epoch: of the fork.
        maps: visibility maps of the fork's heaps; None: pages cannot be read.
    """

    version_num: int
    here: Baseline
    there: Snapshot
    facts: Facts
    epoch: Epoch
    maps: HeapMaps | None

    async def find(self, tables: Sequence[tuple[Table, Table]]) -> list[Candidates]:
        """Those with pages to read, and what is in these.

        Args:
            tables: that are alike on both sides, as the baseline has them and as the fork has.
        """
        tasks = []
        for before, after in tables:
            then = {part.oid: part for part in before.parts}
            key = common_key(before, after)
            tasks.append(
                Candidates(
                    then=before,
                    now=after,
                    why=next((why for part in after.parts if (why := self._why_no_pages(part))), None),
                    spans=[Span(then[part.oid], part, ()) for part in after.parts],
                    key=key,
                )
            )
        ranges = await self._written([span for task in tasks if task.why is None for span in task.spans])
        ranges.update(await self._touched([span for task in tasks if task.why for span in task.spans]))
        for task in tasks:
            task.spans = [
                span._replace(ranges=ranges[span.now.oid]) for span in task.spans if ranges.get(span.now.oid)
            ]
        tasks = [task for task in tasks if task.spans]
        if tasks:
            flat = [span for task in tasks for span in task.spans]
            places = iter(
                await scan.find_places(await self.here.session(), self.there.connection, flat, self.epoch)
            )
            for task in tasks:
                task.places = [next(places) for _ in task.spans]
        return tasks

    def _why_no_pages(self, part: Part) -> str | None:
        """Why the pages that were written to cannot be told, or None."""
        if self.maps is None or self.facts.maps is None:
            return self.there.refused or self.facts.refused or "pages cannot be read"
        if self.maps.witness != self.facts.maps.witness:
            return "the fork was copied through the log (WAL_LOG), which gave every page a new stamp"
        if part.unlogged:
            return "it is unlogged, so that its pages have no stamps"
        return None

    async def _written(self, spans: Sequence[Span]) -> dict[int, list[pages.Range]]:
        """The pages of each part that were written to."""
        if not spans:
            return {}
        assert self.maps is not None
        assert self.facts.maps is not None
        now, then = self.maps.of, self.facts.maps.of
        unsure = [span for span in spans if not pages.are_bits_true(now[span.now.oid], then[span.now.oid])]
        unsure.sort(key=lambda span: now[span.now.oid].blocks)
        compared: list[Span] = []
        room = _ALWAYS_COMPARED
        for span in unsure:
            room -= now[span.now.oid].blocks
            if room >= 0:
                compared.append(span)
        rest = unsure[len(compared) :]
        if rest:
            again = await pages.vacuumed(
                self.there, [span.then for span in rest], UPKEEP, version_num=self.version_num
            )
            compared += [
                span
                for span in rest
                if span.now.oid in again or now[span.now.oid].blocks < then[span.now.oid].blocks
            ]
        written = {span.now.oid: pages.written_pages(now[span.now.oid]) for span in spans}
        oids = [span.now.oid for span in compared]
        if oids:
            await self.here.stamp(self.facts, oids)
            for oid, stamps in (await pages.read_stamps(self.there, oids)).items():
                written[oid] = pages.changed_pages(stamps, self.facts.stamps[oid])
        return {oid: pages.ranges_of(blocks) for oid, blocks in written.items()}

    async def _touched(self, spans: Sequence[Span]) -> dict[int, list[pages.Range]]:
        """All pages of those parts of which some row is new or gone, as counting rows tells."""
        if not spans:
            return {}
        await self.here.count(self.facts, [span.then for span in spans])
        counted = await scan.count_rows(
            self.there.connection, [span.now.source for span in spans], self.epoch
        )
        touched = [
            span.now.oid
            for span, count in zip(spans, counted, strict=True)
            if count.new or count.all != self.facts.counts[span.now.oid]
        ]
        if not touched:
            return {}
        now = await scan.count_pages(self.there.connection, touched)
        then = await scan.count_pages(await self.here.session(), touched)
        return {oid: pages.whole(max(now[oid], then[oid])) for oid in touched}


def common_key(old: Table, new: Table) -> tuple[int, ...]:
    """A key that holds on both sides: an agent may have dropped one."""
    return old.key if frozenset(old.key) in new.uniques else ()
