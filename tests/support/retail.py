"""The retail world with a few made-up customers, and its tools as an agent process serves them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from redteam_forker.changes import collect_changes
from redteam_forker.fork import connect_fork_admin, create_fork, drop_fork
from redteam_forker.seeds import read_seed
from redteam_forker.template import build_template
from redteam_harness.agents.agent import Opening
from redteam_harness.agents.environment import agent_environment
from redteam_harness.agents.host import host_agent
from redteam_harness.agents.process import AgentCommand
from redteam_harness.benchmarks.tau2.world import ROLE, SEED_FILES, TOOLS, World, open_world_folder
from redteam_harness.launch.mint import Mint
from support.cli import REDTEAM, ROOT, environment

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import asyncpg

    from redteam_forker.changes import ChangeSet
    from redteam_forker.fork import Fork
    from redteam_forker.servers import Server
    from redteam_forker.template import Template
    from redteam_harness.agents.host import ProcessAgent
    from redteam_harness.agents.session import ProcessSession

__all__ = [
    "DATA",
    "FOLDER",
    "Desk",
    "Retail",
    "build_retail",
    "few_tasks",
    "long_redteam",
    "needs_data",
    "tiny_world",
]

FOLDER = ROOT / "seeds" / "retail"
DATA = ROOT.parent / "shared" / "tau2" / "retail"

needs_data = pytest.mark.skipif(
    not (DATA / "db.json").is_file(), reason="the benchmark's data (../shared/tau2/retail) is not here"
)

_LIFETIME_S = 600.0
_WHERE = {
    "address1": "1 Elm St",
    "address2": "",
    "city": "Springfield",
    "state": "IL",
    "country": "USA",
    "zip": "62701",
}
# item: product, price, available
_ITEMS = {
    "mug-red": ("mugs", 10.0, True),
    "mug-blue": ("mugs", 12.35, True),
    "mug-gold": ("mugs", 99.99, False),
    "cap-s": ("caps", 46.66, True),
    "cap-l": ("caps", 47.84, True),
}


def _item(item: str) -> dict[str, Any]:
    product, price, _ = _ITEMS[item]
    options = {"kind": item, "said": 'a "quoted"\tword\\'}
    return {
        "name": product.upper(),
        "product_id": product,
        "item_id": item,
        "price": price,
        "options": options,
    }


def _order(number: int, user: str, status: str, items: list[str], *payments: tuple[str, float, str]) -> Any:
    sent = [{"tracking_id": [f"track-{number}"], "item_ids": items}]
    return {
        "order_id": f"#{number}",
        "user_id": user,
        "address": _WHERE,
        "items": [_item(item) for item in items],
        "status": status,
        "fulfillments": [] if status == "pending" else sent,
        "payment_history": [
            {"transaction_type": kind, "amount": amount, "payment_method_id": method}
            for kind, amount, method in payments
        ],
    }


def tiny_world() -> dict[str, Any]:
    """A nested document of the benchmark's shape: two customers, two products, six orders."""
    orders = [
        _order(1, "ann", "pending", ["mug-red", "cap-s"], ("payment", 56.66, "ann-gift")),
        _order(2, "ann", "pending", ["mug-red", "mug-red"], ("payment", 20.0, "ann-visa")),
        _order(3, "ann", "delivered", ["mug-red", "cap-l", "mug-red"], ("payment", 67.84, "ann-visa")),
        _order(4, "ann", "processed", ["cap-s"], ("payment", 46.66, "ann-visa")),
        _order(5, "bob", "pending", ["cap-s"], ("payment", 46.66, "bob-paypal")),
        _order(6, "ann", "pending", ["cap-s"], ("payment", 46.66, "ann-visa")),
    ]
    users: dict[str, Any] = {}
    methods_of: dict[str, list[dict[str, Any]]] = {
        "ann": [
            {"source": "gift_card", "id": "ann-gift", "balance": 50.0},
            {"source": "credit_card", "id": "ann-visa", "brand": "visa", "last_four": "0001"},
            {"source": "paypal", "id": "ann-paypal"},
        ],
        "bob": [{"source": "paypal", "id": "bob-paypal"}],
    }
    for name, methods in methods_of.items():
        users[name] = {
            "user_id": name,
            "name": {"first_name": name.title(), "last_name": "O'Doe"},
            "address": _WHERE,
            "email": f"{name}@example.org",
            "payment_methods": {method["id"]: method for method in methods},
            # The newest first: the order of a list is kept, whatever it is.
            "orders": [one["order_id"] for one in reversed(orders) if one["user_id"] == name],
        }
    products = {
        product: {
            "name": product.upper(),
            "product_id": product,
            "variants": {
                item: {
                    "item_id": item,
                    "options": _item(item)["options"],
                    "available": available,
                    "price": price,
                }
                for item, (of, price, available) in _ITEMS.items()
                if of == product
            },
        }
        for product in ("mugs", "caps")
    }
    return {"products": products, "users": users, "orders": {one["order_id"]: one for one in orders}}


def few_tasks(folder: Path, *ids: str, alternatives: Any = None) -> Path:
    """A folder of the benchmark with some of its tasks only, and with alternatives where there are any."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("db.json", "expected.json", "policy.md"):
        (folder / name).symlink_to((DATA / name).resolve())
    tasks = json.loads((DATA / "tasks.json").read_text(encoding="utf-8"))
    (folder / "tasks.json").write_text(json.dumps([task for task in tasks if task["id"] in ids]))
    if alternatives is not None:
        (folder / "alternatives.json").write_text(json.dumps(alternatives))
    return folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The tools on one fork, and an administration session in it."""

    world: World
    server: Server
    template: Template
    fork: Fork
    session: ProcessSession
    admin: asyncpg.Connection

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """What the agent process answers: `op` is result, with `value`, or error, with `type`."""
        return await self.session.call(1, "call", tool, arguments)

    async def done(self, tool: str, **arguments: Any) -> Any:
        """The value of a call that must succeed."""
        answer = await self.call(tool, **arguments)
        assert answer["op"] == "result", answer
        return answer["value"]

    async def balance(self, card: str) -> str:
        """What a gift card has."""
        return str(await self.admin.fetchval("SELECT balance FROM payment_methods WHERE id = $1", card))

    async def state(self) -> str:
        """The hash of the whole world."""
        return await self.world.state_sha256(self.admin)

    async def changes(self) -> ChangeSet:
        """What differs from the template."""
        return await collect_changes(
            self.server,
            baseline=self.template.baseline,
            fork=self.fork.database,
            watermark=self.fork.watermark,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retail:
    """The made-up world as a template, and a process with the tools."""

    world: World
    server: Server
    template: Template
    mint: Mint
    agent: ProcessAgent

    @contextlib.asynccontextmanager
    async def desk(self) -> AsyncIterator[Desk]:
        """A fork with the tools on it, dropped afterwards."""
        fork = await create_fork(self.server, self.template, lifetime_s=_LIFETIME_S)
        try:
            token = self.mint.token(fork.name, fork, lifetime_s=_LIFETIME_S)
            session = await self.agent.open(
                Opening(conversation=fork.name, token=token, fork=fork, sink=lambda _: None)
            )
            admin = await connect_fork_admin(self.server, fork)
            try:
                yield Desk(
                    world=self.world,
                    server=self.server,
                    template=self.template,
                    fork=fork,
                    session=session,
                    admin=admin,
                )
            finally:
                await admin.close()
                await session.close()
        finally:
            await drop_fork(self.server, fork)


@contextlib.asynccontextmanager
async def build_retail(server: Server, folder: Path) -> AsyncIterator[Retail]:
    """Load the made-up world, and start a process with the tools."""
    world = open_world_folder(FOLDER)
    (folder / "db.json").write_text(json.dumps(tiny_world()))
    world.write_seed(folder / "db.json", folder)
    seed = read_seed(folder, SEED_FILES, anchor=None, moves=())
    template = await build_template(server, seed, role=ROLE, today=datetime.now(UTC).date())
    mint = Mint(tenant="retail", run="tests", host=server.facts.host)
    command = AgentCommand(
        interpreter=sys.executable,
        folder=FOLDER,
        agent=None,
        tools=TOOLS,
        env=agent_environment(os.environ, ()),
        log=folder / "tools.log",
        stdout="fault",
        turn_s=60.0,
    )
    async with host_agent(command, mint.trust) as agent:
        yield Retail(world=world, server=server, template=template, mint=mint, agent=agent)


def long_redteam(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `redteam` with the patience that eighty conversations need on a busy machine."""
    done = subprocess.run(
        [str(REDTEAM), *map(str, arguments)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=220,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done
