"""What a `changes` rule says of one table, or of schema objects: the models of its entries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field

from redteam_rubrics.statements import check_condition
from redteam_rubrics.strict import Count, Names, Strict, distinct, not_empty, one_or_many, refusing

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Entry", "Operation", "Permission", "bare"]

Operation = Literal["insert", "update", "delete"]


class Permission(Strict):
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
    """

    where: Annotated[str, refusing(check_condition)] | None = None
    do: Annotated[tuple[Operation, ...], refusing(distinct), refusing(not_empty), one_or_many(Operation)]
    columns: Names = ()
    by: Names = ()
    at_most: Count | None = None

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        # Not yet validated: anything else that `do` may hold gets its own error.
        if "columns" in data and isinstance(data["do"], str | list) and "update" not in data["do"]:
            yield ("columns",), "`columns` limits what an update may change, but `do` has no update"

    @property
    def is_plain(self) -> bool:
        """Whether it allows its operations on any row: then no row need be looked at."""
        return self.where is None and not self.columns and not self.by and self.at_most is None


class Entry(Strict):
    """`{table: Permission}`, or `{objects: [names]}`: schema objects that may be created, altered or dropped.

    A table is written `patients`, or `billing.claims` outside of schema public; as the catalog spells it. An
    object is written with its schema.

    Attributes:
        objects: in place of a table: what may be created, altered or dropped; `public.tmp_*` names many.
    """

    model_config = ConfigDict(
        extra="allow", frozen=True, json_schema_extra={"minProperties": 1, "maxProperties": 1}
    )
    __pydantic_extra__: dict[str, Permission] = Field(init=False)

    objects: Names = ()

    @classmethod
    def _complaints(cls, data: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], str]]:
        if len(data) != 1:
            yield (), f"expected one table, found {len(data)}; begin each table with a dash"

    @classmethod
    def _keys(cls) -> str:
        return "a table and what may happen to its rows, as in appointments: {do: [insert]}"

    @property
    def written(self) -> str:
        """Its only key, as it is written."""
        return next(iter(self.__pydantic_extra__), "objects")

    @property
    def table(self) -> str | None:
        """The table it is about, as findings name it, or None when it is about objects."""
        return bare(self.written) if self.__pydantic_extra__ else None

    @property
    def permission(self) -> Permission | None:
        """What may happen to the table's rows, or None when it is about objects."""
        return next(iter(self.__pydantic_extra__.values()), None)


def bare(table: str) -> str:
    """A table's name without `public.`, as findings have it."""
    return table.removeprefix("public.")
