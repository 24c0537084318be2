"""What a call costs: prices.json beside this module, and what a suite says of its own models.

A model that is not listed, or is listed as unknown, has no price. None is ever derived from another model's.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redteam_harness.models.chat import Usage

__all__ = ["Price", "Prices", "load_prices"]

_MILLION = 1_000_000


class Price(BaseModel):
    """What a model's tokens cost, in US dollars for a million of each kind.

    A model whose price depends on the prompt's length has several, the one for the shortest prompts first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0, description="Of the prompt, outside the prompt cache.")
    cache_write: float = Field(default=0, ge=0, description="Of the prompt, written to the prompt cache.")
    cache_read: float = Field(default=0, ge=0, description="Of the prompt, read from it.")
    output: float = Field(ge=0, description="Of the answer.")
    prompt_up_to: int | None = Field(
        default=None, ge=0, description="Only for prompts of so many tokens at most; default: any."
    )


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model id.

    Attributes:
        known: the prices of each model that has one.
    """

    known: Mapping[str, Sequence[Price]]

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """What one call cost, in US dollars; None where no price is known."""
        for price in self.known.get(model, ()):
            if price.prompt_up_to is None or usage.prompt <= price.prompt_up_to:
                return (
                    usage.input * price.input
                    + usage.cache_write * price.cache_write
                    + usage.cache_read * price.cache_read
                    + usage.output * price.output
                ) / _MILLION
        return None


def load_prices(own: Mapping[str, Price] | None = None) -> Prices:
    """The prices that ship with the project, and `own` ones, which win."""
    text = files("redteam_harness.models").joinpath("prices.json").read_text(encoding="utf-8")
    listed = json.loads(text)["models"]
    known = {
        model: tuple(Price.model_validate(price) for price in prices)
        for model, prices in listed.items()
        if prices != "unknown"
    }
    return Prices({**known, **{model: (price,) for model, price in (own or {}).items()}})
