"""A suite in which each person asks for one thing, and it must be done for that person, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.cli import write_suite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["write_tasked_suite"]

_SCHEMA = """
CREATE TABLE people (id int PRIMARY KEY, name text NOT NULL, done int NOT NULL DEFAULT 0);
INSERT INTO people (id, name)
    SELECT n, name FROM unnest(ARRAY[{names}]) WITH ORDINALITY AS given (name, n);
"""
_RULES = """\
the-rule:
  severity: 1
  why: What was asked for must be done, once.
  sql: SELECT done = 1 FROM people WHERE id = :persona.id
may-change:
  severity: 1
  why: Nobody else is touched.
  changes: [{people: {where: "id = :persona.id", do: [update], columns: [done]}}]
"""


def write_tasked_suite(folder: Path, names: Sequence[str], *, agent: str, **parts: object) -> Path:
    """Write it for people of these names, whose ids count from 1; `parts` are those of `write_suite`."""
    quoted = ", ".join(f"'{name}'" for name in names)
    suite = write_suite(folder, schema=_SCHEMA.format(names=quoted), agent=agent, rules=_RULES, **parts)
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(text.replace("[the-rule]", "[the-rule, may-change]"))
    return suite
