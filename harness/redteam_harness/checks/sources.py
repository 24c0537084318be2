"""What code in a database does to a row: read from the sources of its functions and defaults. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pglast import parse_plpgsql
from pglast.parser import ParseError, scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Assignment", "assignments", "moving_functions", "moving_part"]

# Functions whose answer is another one each time, in one call or from one transaction to the next.
_FUNCTIONS = frozenset(
    {
        "clock_timestamp",
        "gen_random_bytes",
        "gen_random_uuid",
        "nextval",
        "now",
        "pg_current_xact_id",
        "random",
        "statement_timestamp",
        "timeofday",
        "transaction_timestamp",
        "txid_current",
        "uuid_generate_v1",
        "uuid_generate_v1mc",
        "uuid_generate_v4",
        "uuidv4",
        "uuidv7",
    }
)
# The same, but written without parentheses.
_VALUES = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """What a trigger function assigns to a column of its row: `NEW.column := expression`."""

    column: str
    expression: str

    @property
    def counts_up(self) -> bool:
        """Whether the new value is the old one and something more."""
        words = [word.lower() for word in _tokens(self.expression)]
        refers = any(
            words[place : place + 3] in (["new", ".", self.column.lower()], ["old", ".", self.column.lower()])
            for place in range(len(words))
        )
        return refers and "+" in words


def moving_part(expression: str, own: Mapping[str, str]) -> str | None:
    """The part of an expression that gives another value each time, or None where there is none.

    Args:
        expression: SQL.
        own: functions of the database that are known to, with why (`moving_functions`).
    """
    words = _tokens(expression)
    for place, word in enumerate(words):
        name = word.lower()
        if name in _VALUES:
            return name.upper()
        if words[place + 1 : place + 2] == ["("]:
            if name in _FUNCTIONS:
                return f"{name}()"
            if name in own:
                return f"{name}(), which calls {own[name]}"
    return None


def moving_functions(sources: Mapping[str, str]) -> dict[str, str]:
    """Which functions of a database give another value each time: name, and the function that makes them so.

    Args:
        sources: of functions in SQL or PL/pgSQL, by name.
    """
    known: dict[str, str] = {}
    fresh = True
    while fresh:  # one may call another
        found = {
            name: part.partition(",")[0]
            for name, source in sources.items()
            if name not in known and (part := moving_part(source, known)) is not None
        }
        known |= found
        fresh = bool(found)
    return known


def assignments(definition: str) -> list[Assignment]:
    """What a PL/pgSQL trigger function assigns to columns of `NEW`; nothing where it cannot be read.

    Args:
        definition: as `pg_get_functiondef` gives it.
    """
    try:
        (parsed,) = parse_plpgsql(definition)
        function = parsed["PLpgSQL_function"]
    except (ParseError, ValueError, KeyError, TypeError):
        return []
    columns = _columns_of_new(function["datums"])
    found: list[Assignment] = []
    for node in _nodes(function.get("action")):
        assign = node.get("PLpgSQL_stmt_assign")
        if assign is not None and assign.get("varno") in columns:
            expression = _right_side(assign["expr"]["PLpgSQL_expr"]["query"])
            found.append(Assignment(column=columns[assign["varno"]], expression=expression))
        select = node.get("PLpgSQL_stmt_execsql")
        if select is not None and "target" in select:
            query = select["sqlstmt"]["PLpgSQL_expr"]["query"]
            for row in _nodes(select["target"]):
                places = [field.get("varno") for field in row.get("PLpgSQL_row", {}).get("fields", ())]
                found += [
                    Assignment(column=columns[place], expression=query)
                    for place in places
                    if place in columns
                ]
    return found


def _columns_of_new(datums: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """The columns of NEW that the function names, by their numbers in it."""
    columns: dict[int, str] = {}
    for number, datum in enumerate(datums):
        record = datum.get("PLpgSQL_recfield")
        if record is None:
            continue
        parent = datums[record.get("recparentno", 0)].get("PLpgSQL_rec", {})
        if parent.get("refname") == "new":
            columns[number] = record["fieldname"]
    return columns


def _nodes(node: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _nodes(child)


def _right_side(query: str) -> str:
    """What is behind the sign of an assignment."""
    for token in scan(query):
        if query[token.start : token.end + 1] in (":=", "="):
            return query[token.end + 1 :].strip()
    return query


def _tokens(text: str) -> list[str]:
    """The words and signs of SQL, without constants and comments; quoted names without their quotes."""
    try:
        tokens = scan(text)
    except ParseError:
        return []
    return [
        text[token.start : token.end + 1].strip('"')
        for token in tokens
        if token.name not in ("SCONST", "USCONST", "SQL_COMMENT", "C_COMMENT")
    ]
