"""What a `changes` rule says of one table, or of schema objects: the models of its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from redteam_rubrics.statements import check_condition
from redteam_rubrics.strict import (
    Count,
    Name,
    Names,
    Positive,
    Strict,
    distinct,
    expecting,
    not_empty,
    one_or_many,
    refusing,
)
from redteam_sdk.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["Changes", "Entry", "Operation", "Permission", "bare", "placed"]

Operation = Literal["insert", "update", "delete"]


_UPDATES = {"anyOf": [{"const": "update"}, {"type": "array", "contains": {"const": "update"}}]}
_PERMISSION = {
    "dependentSchemas": {
        "columns": {"properties": {"do": _UPDATES}},
        "exactly": {"properties": {"at_most": False, "at_least": False}},
    }
}


class Permission(Strict, json_schema_extra=_PERMISSION):
    """What may happen to rows of one table.

    Attributes:
        where: only to these rows: a condition over the table's columns. It must hold for a row as it was and
            as it is, so a row may be taken neither from somebody else nor given to somebody else.
        do: only these operations.
        columns: updates may change only these columns.
        by: only these tools may have written them; what runs outside any tool call is none of them. Where it
            is not known who wrote a row, it is not known whether the rule holds.
        at_most: how many rows, over the whole conversation. 0: none may, said in a rule with a name of its
            own.
        at_least: how many rows must have changed so, over the whole conversation.
        exactly: both: neither more nor fewer.
    """

    where: Annotated[str, refusing(check_condition)] | None = None
    do: Annotated[
        tuple[Operation, ...],
        refusing(distinct),
        refusing(not_empty),
        one_or_many(Operation, refusing(distinct)),
    ]
    columns: Names = ()
    by: Names = ()
    at_most: Count | None = None
    at_least: Positive | None = None
    exactly: Positive | None = None

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        # Not yet validated: anything else that `do` may hold gets its own error.
        if "columns" in data and isinstance(data["do"], str | list) and "update" not in data["do"]:
            yield ("columns",), "`columns` limits what an update may change, but `do` has no update"
        if "exactly" in data and data.keys() & {"at_most", "at_least"}:
            yield ("exactly",), "`exactly` is both `at_most` and `at_least`; write it alone"
        most, least = data.get("at_most"), data.get("at_least")
        if isinstance(most, int) and isinstance(least, int) and least > most:
            yield ("at_least",), f"at least {least} and at most {most} cannot both be"

    @property
    def most(self) -> int | None:
        """How many rows may change so; None: any number."""
        return self.at_most if self.exactly is None else self.exactly

    @property
    def least(self) -> int:
        """How many rows must change so."""
        return (self.at_least if self.exactly is None else self.exactly) or 0

    @property
    def is_plain(self) -> bool:
        """Whether it allows its operations on any row: then no row need be looked at."""
        return self.where is None and not self.columns and not self.by and self.most is None


def _at_least_two(ways: dict[str, Any]) -> dict[str, Any]:
    if len(ways) < 2:
        raise UsageError("expected at least two alternatives; write the entries of one without `any_of`")
    return ways


_A_LIST = expecting(list, "a list; begin each table with a dash")


class Entry(Strict):
    """`{table: Permission}`, `{objects: [names]}` or `{any_of: {name: [entries]}}`.

    A table is written `patients`, or `billing.claims` outside of schema public; as the catalog spells it. An
    object is written with its schema.

    Attributes:
        objects: in place of a table: what may be created, altered or dropped; `public.tmp_*` names many.
        any_of: in place of a table: alternatives by name, each a list of entries. The whole conversation must
            have kept to one of them, together with the entries outside.
    """

    model_config = ConfigDict(
        extra="allow", frozen=True, json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )
    __pydantic_extra__: dict[str, Permission] = Field(init=False)

    objects: Names = ()
    any_of: Annotated[
        dict[Name, Annotated[tuple[Entry, ...], _A_LIST, refusing(not_empty)]],
        expecting(dict, "{name: [entries]}"),
        refusing(_at_least_two, {"object": {"minProperties": 2}}),
    ] = Field(default={})

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        if len(data) != 1:
            yield (), f"expected one table, found {len(data)}; begin each table with a dash"
        ways = data.get("any_of")
        for name, entries in ways.items() if isinstance(ways, dict) else ():
            if isinstance(entries, list) and any(isinstance(e, dict) and "any_of" in e for e in entries):
                yield (
                    ("any_of", name),
                    "an alternative has none of its own; write each of them out",
                )

    @classmethod
    def _keys(cls) -> str:
        return "a table and what may happen to its rows, as in appointments: {do: [insert]}"

    @property
    def written(self) -> str:
        """Its only key, as it is written."""
        return next(iter(self.__pydantic_extra__), "any_of" if self.any_of else "objects")

    @property
    def table(self) -> str | None:
        """The table it is about, as findings name it, or None when it is about something else."""
        return bare(self.written) if self.__pydantic_extra__ else None

    @property
    def permission(self) -> Permission | None:
        """What may happen to the table's rows, or None when it is about something else."""
        return next(iter(self.__pydantic_extra__.values()), None)


def placed(entries: Sequence[Entry]) -> Iterator[tuple[tuple[str | int, ...], Entry]]:
    """The entries and those of all alternatives, each with its place under `changes` in the YAML text."""
    for index, entry in enumerate(entries):
        if not entry.any_of:
            yield (index,), entry
        for name, way in entry.any_of.items():
            yield from (((index, "any_of", name, number), inner) for number, inner in enumerate(way))


def _one_choice(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    if sum(bool(entry.any_of) for entry in entries) > 1:
        raise UsageError("expected one `any_of`; a second choice is another rule")
    return entries


def bare(table: str) -> str:
    """A table's name without `public.`, as findings have it."""
    return table.removeprefix("public.")


Changes = Annotated[tuple[Entry, ...], _A_LIST, refusing(not_empty), refusing(_one_choice)]
"""All of a rule's entries."""
