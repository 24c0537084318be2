"""Turns a `db.json` of tau2-bench's retail domain into rows of schema.sql.

    python -m seeds.retail.load path/to/db.json --output data.sql

The output is SQL with COPY blocks, to be loaded after schema.sql. It holds the benchmark's data: keep it
where the data is, not in the project.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = ["BadData", "data_sql", "main"]

Row = tuple[Any, ...]

_ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})

# In the order of their foreign keys.
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "products": ("id", "name"),
    "variants": ("id", "product_id", "options", "available", "price"),
    "users": ("id", "first_name", "last_name", "email", *_ADDRESS),
    "payment_methods": ("id", "user_id", "kind", "brand", "last_four", "balance"),
    "orders": (
        "id", "user_id", "number", "status", *_ADDRESS, "cancel_reason",
        "exchange_payment_method_id", "exchange_price_difference", "return_payment_method_id",
    ),
    "order_items": ("order_id", "position", "item_id", "product_id", "price", "options"),
    "payments": ("order_id", "position", "kind", "amount", "payment_method_id"),
    "shipments": ("order_id", "position", "tracking_ids"),
    "shipment_items": ("order_id", "shipment", "position", "item_id"),
    "exchange_items": ("order_id", "position", "item_id", "new_item_id", "product_id"),
    "return_items": ("order_id", "position", "item_id"),
}  # fmt: skip


class BadData(Exception):
    """The document is not of the benchmark's shape; says where."""


def data_sql(world: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a SQL file with the rows of a nested document, one COPY for each table.

    Raises:
        BadData: a part of it is missing, or is of another kind than expected.
    """
    rows: dict[str, list[Row]] = {table: [] for table in _COLUMNS}
    try:
        _take_products(world["products"], rows)
        _take_users(world["users"], rows)
        _take_orders(world["orders"], world, rows)
    except KeyError as error:
        raise BadData(f"something lacks {error.args[0]!r}") from error
    except (TypeError, AttributeError) as error:
        raise BadData(f"something is of another kind than expected: {error}") from error
    for table, columns in _COLUMNS.items():
        yield f"COPY {table} ({', '.join(columns)}) FROM stdin;\n"
        yield from ("\t".join(map(_cell, row)) + "\n" for row in rows[table])
        yield "\\.\n\n"


def _take_products(products: Mapping[str, Any], rows: dict[str, list[Row]]) -> None:
    for product in products.values():
        rows["products"].append((product["product_id"], product["name"]))
        rows["variants"] += [
            (one["item_id"], product["product_id"], one["options"], one["available"], one["price"])
            for one in product["variants"].values()
        ]


def _take_users(users: Mapping[str, Any], rows: dict[str, list[Row]]) -> None:
    for user in users.values():
        name, address = user["name"], user["address"]
        rows["users"].append(
            (
                user["user_id"],
                name["first_name"],
                name["last_name"],
                user["email"],
                *(address[part] for part in _ADDRESS),
            )
        )
        rows["payment_methods"] += [
            (
                method["id"],
                user["user_id"],
                method["source"],
                method.get("brand"),
                method.get("last_four"),
                method.get("balance"),
            )
            for method in user["payment_methods"].values()
        ]


def _take_orders(orders: Mapping[str, Any], world: Mapping[str, Any], rows: dict[str, list[Row]]) -> None:
    numbers = {
        order: number
        for user in world["users"].values()
        for number, order in enumerate(user["orders"], start=1)
    }
    product_of = {
        item: product["product_id"] for product in world["products"].values() for item in product["variants"]
    }
    for order in orders.values():
        ident = order["order_id"]
        if ident not in numbers:
            raise BadData(f"order {ident} is in no user's list of orders")
        rows["orders"].append(
            (
                ident,
                order["user_id"],
                numbers[ident],
                order["status"],
                *(order["address"][part] for part in _ADDRESS),
                order.get("cancel_reason"),
                order.get("exchange_payment_method_id"),
                order.get("exchange_price_difference"),
                order.get("return_payment_method_id"),
            )
        )
        rows["order_items"] += _numbered(
            ident,
            [(one["item_id"], one["product_id"], one["price"], one["options"]) for one in order["items"]],
        )
        rows["payments"] += _numbered(
            ident,
            [
                (one["transaction_type"], one["amount"], one["payment_method_id"])
                for one in order["payment_history"]
            ],
        )
        for place, shipment in enumerate(order["fulfillments"], start=1):
            rows["shipments"].append((ident, place, shipment["tracking_id"]))
            rows["shipment_items"] += [
                (ident, place, position, item) for position, item in enumerate(shipment["item_ids"], start=1)
            ]
        old, new = order.get("exchange_items") or (), order.get("exchange_new_items") or ()
        rows["exchange_items"] += _numbered(
            ident, [(one, other, product_of[one]) for one, other in zip(old, new, strict=True)]
        )
        rows["return_items"] += _numbered(ident, [(one,) for one in order.get("return_items") or ()])


def _numbered(order: str, parts: Sequence[Row]) -> Iterable[Row]:
    return [(order, position, *part) for position, part in enumerate(parts, start=1)]


def _cell(value: Any) -> str:
    """A value as COPY's text format has it; a float as Python prints it, so that it comes back as it was."""
    match value:
        case None:
            return "\\N"
        case bool():
            return "t" if value else "f"
        case dict():
            return json.dumps(value, ensure_ascii=False).translate(_ESCAPES)
        case list():
            quoted = (one.replace("\\", "\\\\").replace('"', '\\"') for one in value)
            return ("{" + ",".join(f'"{one}"' for one in quoted) + "}").translate(_ESCAPES)
        case _:
            return str(value).translate(_ESCAPES)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the SQL; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m seeds.retail.load", description=__doc__.splitlines()[0])
    parser.add_argument("db", type=Path, help="the benchmark's db.json")
    parser.add_argument("--output", "-o", type=Path, required=True, help="the SQL file to write")
    options = parser.parse_args(arguments)
    try:
        world = json.loads(options.db.read_text(encoding="utf-8"))
        with options.output.open("w", encoding="utf-8") as file:
            file.writelines(data_sql(world))
    except OSError as error:
        print(f"{error.filename}: {error.strerror}", file=sys.stderr)  # noqa: T201  # a command
        return 2
    except (ValueError, BadData) as error:
        print(f"{options.db}: {error}", file=sys.stderr)  # noqa: T201  # a command
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
