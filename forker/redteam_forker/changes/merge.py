"""Brings rows of both sides together that come in one order, and holds no more of them than sort alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from redteam_forker.changes.pairing import Image, Pairing

__all__ = ["batch_of", "merge"]


async def batch_of(rows: list[Image]) -> AsyncIterator[list[Image]]:
    """Rows that are there already, as a stream."""
    yield rows


async def merge(pairing: Pairing, olds: AsyncIterator[list[Image]], news: AsyncIterator[list[Image]]) -> None:
    """Feed a pairing from two streams in one order, group by group."""
    old, new = _Groups(olds), _Groups(news)
    await old.load()
    await new.load()
    while old.sort is not None or new.sort is not None:
        if new.sort is None or (old.sort is not None and old.sort < new.sort):
            pairing.feed(await old.take(), ())
        elif old.sort is None or new.sort < old.sort:
            pairing.feed((), await new.take())
        else:
            pairing.feed(await old.take(), await new.take())


class _Groups:
    """Images that sort alike, one group after another."""

    __slots__ = ("_at", "_batch", "_batches", "sort")

    def __init__(self, batches: AsyncIterator[list[Image]]) -> None:
        self._batches = batches
        self._batch: list[Image] = []
        self._at = 0
        # Of the next group; None: there is none.
        self.sort: bytes | None = None

    async def load(self) -> None:
        """See that there is a next row, if there is any left."""
        while self._at >= len(self._batch):
            batch = await anext(self._batches, None)
            if batch is None:
                self.sort = None
                return
            self._batch, self._at = batch, 0
        self.sort = self._batch[self._at].sort

    async def take(self) -> list[Image]:
        """The next group."""
        sort, group = self.sort, []
        while self.sort is not None and self.sort == sort:
            group.append(self._batch[self._at])
            self._at += 1
            if self._at < len(self._batch):
                self.sort = self._batch[self._at].sort
            else:
                await self.load()
        return group
