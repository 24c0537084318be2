"""Writes agent.py of a draft: an agent of rules with tools for this schema, which the user replaces. Pure."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING

from redteam_harness.drafting.casting import find_select, listed
from redteam_harness.drafting.draft import parameter
from redteam_harness.drafting.rules_text import tool_names
from redteam_harness.drafting.schema import ident
from redteam_harness.drafting.words import an, label, slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from redteam_harness.drafting.draft import Draft
    from redteam_harness.drafting.schema import Column

__all__ = ["agent_text"]

_MAX_LISTED = 50
_PLACE = re.compile(r"\{\{(\w+)\}\}")


def agent_text(draft: Draft) -> str:
    """agent.py."""
    names = tool_names(draft)
    owners = draft.owner_columns
    who = label(draft.who)
    facts = [draft.argument(fact.alias) for fact in draft.identity]
    things = draft.subject.many
    places = {
        **names,
        "asked": json.dumps([fact.label for fact in draft.identity]),
        "find_sql": _sql(find_select(draft)),
        "list_sql": _sql(_list_sql(draft)),
        "who": who,
        "a_who": an(who),
        "things": things,
        "find_parameters": ", ".join(f"{fact}: str" for fact in facts),
        "find_arguments": ", ".join(facts),
        "find_documented": _documented(
            (draft.argument(fact.alias), f"the caller's {fact.label}") for fact in draft.identity
        ),
        "list_parameters": _typed(draft, owners),
        "list_arguments": ", ".join(draft.argument(alias) for alias, _ in owners),
        "list_documented": _documented(_whose(draft, owners)),
        "own_arguments": _of_caller(owners),
        "change_sql": "",
        "change_tool": "",
        "change_served": "",
    }
    if draft.change is not None:
        places |= _changing(draft, names["change"])
    return _filled("desk.txt", places)


def _filled(template: str, places: Mapping[str, str]) -> str:
    text = (files("redteam_harness.drafting") / template).read_text(encoding="utf-8")
    return _PLACE.sub(lambda place: places[place[1]], text)


def _sql(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'"""\n{escaped}\n"""'


def _list_sql(draft: Draft) -> str:
    subject = draft.subject
    key = ident(draft.row_key.name)
    if len(draft.person.key) == 1 or subject.owned:
        shown = [f'{key}::text AS "number"']
    else:
        shown = [f"concat_ws('/', {', '.join(ident(column.name) for _, column in draft.keys)}) AS \"number\""]
    for column in subject.shown:
        alias = slug(column.name) if slug(column.name) != "number" else f"{subject.slug}_number"
        shown.append(f"{ident(column.name)}::text AS {ident(alias)}")
    values = [parameter(number, column) for number, (_, column) in enumerate(draft.owner_columns, 1)]
    return (
        f"SELECT {listed(shown)}\nFROM {subject.table.sql}\n"
        f"WHERE {draft.own_rows(values)}\nORDER BY {key}\nLIMIT {_MAX_LISTED}"
    )


def _typed(draft: Draft, names: Sequence[tuple[str, Column]]) -> str:
    return ", ".join(
        f"{draft.argument(alias)}: {'int' if column.is_whole else 'str'}" for alias, column in names
    )


def _whose(draft: Draft, owners: Sequence[tuple[str, Column]]) -> list[tuple[str, str]]:
    return [(draft.argument(alias), f"whose, by {label(column.name)}") for alias, column in owners]


def _documented(names: Iterable[tuple[str, str]]) -> str:
    return "\n".join(f"        {name}: {meaning}." for name, meaning in names)


def _of_caller(owners: Sequence[tuple[str, Column]]) -> str:
    return ", ".join(f'caller["{alias}"]' for alias, _ in owners)


def _changing(draft: Draft, name: str) -> dict[str, str]:
    """What an agent has more that can change something."""
    change, subject = draft.change, draft.subject
    assert change is not None
    column = label(change.column.name)
    own = change.owned is None
    owners = draft.keys if own else draft.owner_columns
    new = f"new_{slug(change.column.name)}"
    parameters = _typed(draft, owners)
    arguments = [draft.argument(alias) for alias, _ in owners]
    documented = _whose(draft, owners)
    called = _of_caller(owners)
    served = ['    if changed := re.search(r\'\\bchange\\b.* to "([^"]+)"\', wish, re.IGNORECASE):']
    if not own:
        parameters += f", number: {'int' if draft.row_key.is_whole else 'str'}"
        arguments.insert(0, "number")
        documented.append(("number", f"which {subject.one}, by its {label(draft.row_key.name)}"))
        called += ", int(number[1])" if draft.row_key.is_whole else ", number[1]"
        served += [
            "        if number is None or number[1] not in own:",
            f'            return f"I am sorry, I can only change your own {subject.many}. {{MORE}}"',
        ]
    served += [
        f"        if await {name}({called}, changed[1]):",
        f'            return f"Done: the {column} is {{changed[1]}} now. {{MORE}}"',
        '        return f"I am sorry, that did not work. {MORE}"',
        "",
    ]
    documented.append((new, "the new value"))
    places = {
        "change": name,
        "new": new,
        "column": column,
        "of_what": "of the caller's own record" if own else f"of one of the caller's {subject.many}",
        "change_parameters": parameters,
        "change_arguments": ", ".join(arguments),
        "change_documented": _documented(documented),
    }
    return {
        "change_sql": f"CHANGE = {_sql(draft.change_sql)}\n",
        "change_tool": _filled("change_tool.txt", places),
        "change_served": "\n".join(served),
    }
