"""`redteam compare` and `redteam power`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from redteam_harness.cli.commands.options import DEFAULT_OUT, Out, SuitePath

__all__ = ["compare", "power"]


class DecisionChoice(StrEnum):
    """What somebody decides on a candidate."""

    ship = "ship"
    hold = "hold"


def compare(
    base: Annotated[str, typer.Argument(metavar="BASE", help="The run of what is deployed; as for `show`.")],
    candidate: Annotated[str, typer.Argument(metavar="CANDIDATE", help="The run of what may be.")],
    min_effect: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="The smallest change that matters; default: the suite's. 0.05 is 5 points."
        ),
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help="Compare although the runs differ in this part. May be repeated."),
    ] = None,
    decide: Annotated[
        DecisionChoice | None,
        typer.Option(help="Write down what you decide on it, with --who and --because."),
    ] = None,
    who: Annotated[str | None, typer.Option(metavar="NAME", help="Who decides.")] = None,
    because: Annotated[str, typer.Option(metavar="TEXT", help="Why, in your words.")] = "",
    key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Your private Ed25519 key (PEM): signs the decision.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON, nothing else.")] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Say whether a candidate is better than a base, conversation by conversation.

    Both runs must have had the same data, personas, rules and judges; what differs is refused by name. The
    verdict is improved, regressed, unchanged or inconclusive; a severity-1 failure that the base does not
    have is a regression whatever the rate says. What was found, and decided, is appended to comparisons.jsonl
    beside the candidate's evidence.

    Exit code: 0 improved or unchanged, 1 regressed, 2 usage or not comparable, 3 inconclusive, or evidence
    that cannot be read.
    """
    from redteam_harness.cli.comparing import CompareCommand, run_compare

    raise typer.Exit(
        run_compare(
            CompareCommand(
                base=base,
                candidate=candidate,
                min_effect=min_effect,
                allow=tuple(allow or ()),
                decide=None if decide is None else decide.value,
                who=who,
                because=because,
                key=key,
                json=json,
                out=out,
            )
        )
    )


def power(
    suite: SuitePath = Path(),
    effect: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="The change of the pass rate to find; default: the suite's."),
    ] = None,
    base_rate: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="SHARE", help="The pass rate now; default: that of --of, or 0.8."),
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", metavar="RUN", help="Take the pass rate of this run; as for `show`.")
    ] = None,
    chance: Annotated[
        float, typer.Option("--power", metavar="SHARE", help="How surely it is to be found.")
    ] = 0.8,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    out: Out = DEFAULT_OUT,
) -> None:
    """Say how many conversations `redteam compare` needs to find a change.

    It is reckoned for agents whose conversations come out by chance, each run anew. Where most are always
    passed or always failed, fewer will do.

    Exit code: 0 told, 2 usage.
    """
    from redteam_harness.cli.comparing import PowerCommand, run_power

    run_power(
        PowerCommand(suite=suite, effect=effect, base_rate=base_rate, of=of, power=chance, json=json, out=out)
    )
