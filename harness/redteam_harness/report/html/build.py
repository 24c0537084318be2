"""Puts the page together: the summary as HTML, the evidence compressed, one style and one script."""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from redteam_harness.report.html.conversation import conversation_data, list_entry, rank, searched
from redteam_harness.report.html.overview import overview
from redteam_harness.report.html.text import as_json, plain_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from redteam_harness.evidence.run import StoredConversation

__all__ = ["html_report"]

_CHUNK_BYTES = 192 * 1024
"""How much evidence is compressed together: conversations are alike, and opening one inflates a few."""
_SCRIPT = ("nodes", "evidence", "list", "changes", "talk", "conversation", "start")
"""The parts of the script, one after the other in one scope; what a part uses at once stands before it."""


def html_report(data: Mapping[str, Any], stored: Iterable[tuple[str, StoredConversation]]) -> str:
    """The report as one HTML file that loads nothing and asks nobody.

    Args:
        data: report.json.
        stored: the evidence of its conversations by their ids; each is read once. Of a conversation that is
            not among them, the page shows what report.json says.

    Raises:
        UsageError: a change set is of another version or damaged.
    """
    by_id = {one["id"]: one for one in data["conversations"]}
    words: dict[str, str] = {}
    places: dict[str, int] = {}
    chunks: list[str] = []
    for chunk in _chunks(by_id, stored, words):
        places |= dict.fromkeys(chunk, len(chunks))
        chunks.append("{" + ",".join(f"{as_json(id_)}:{body}" for id_, body in chunk.items()) + "}")
    ordered = sorted(data["conversations"], key=rank)
    index = [list_entry(one, places.get(one["id"])) for one in ordered]
    style, script = _asset("report.css"), _script()
    return Template(_asset("page.html")).substitute(
        policy=(
            f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
            "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
        ),
        title=plain_text(f"{data['suite']} · run {data['run']}"),
        style=style,
        script=script,
        overview=overview(data, ordered),
        index=as_json(index),
        words=_packed(as_json([words.get(one["id"], "") for one in ordered])),
        chunks="\n".join(
            f'<script type="text/plain" id="evidence-{number}">{_packed(chunk)}</script>'
            for number, chunk in enumerate(chunks)
        ),
    )


def _chunks(
    by_id: Mapping[str, Mapping[str, Any]],
    stored: Iterable[tuple[str, StoredConversation]],
    words: dict[str, str],
) -> Iterator[dict[str, str]]:
    """The JSON of conversations by id, a few together; on the way, the words of each."""
    chunk: dict[str, str] = {}
    size = 0
    for id_, one in stored:
        if id_ not in by_id:
            continue
        words[id_] = searched(by_id[id_], one)
        body = as_json(conversation_data(by_id[id_], one))
        if chunk and size + len(body) > _CHUNK_BYTES:
            yield chunk
            chunk, size = {}, 0
        chunk[id_] = body
        size += len(body)
    if chunk:
        yield chunk


def _packed(text: str) -> str:
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def _script() -> str:
    parts = "\n".join(_asset(f"script/{name}.js") for name in _SCRIPT)
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _asset(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
