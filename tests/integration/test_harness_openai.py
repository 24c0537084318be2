"""Models behind an OpenAI-compatible server, over real HTTP: streamed or not, and in a whole launch."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

import anyio.to_thread
import pytest
from support.cli import dsn_of, redteam, report_of
from support.completions_api import completions_api
from support.live import live_suite, players
from support.messages_api import Answer, text, tool_uses

from redteam_harness.models.chat import ModelFault, Request, Usage
from redteam_harness.models.openai import OpenAICompatible

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from redteam_forker import Server
    from redteam_harness.models.chat import Reply

HELLO = Request(system="be brief", messages=[{"role": "user", "content": "hello"}])
STALL_S = 0.5


async def sent(answer: Answer, *, streams: bool = True, between: Callable[[], None] | None = None) -> Reply:
    with completions_api(lambda _: answer, streams=streams, between=between) as api:
        async with OpenAICompatible.client(api.base_url, None, stall_s=STALL_S) as client:
            return await OpenAICompatible("openai:local", client).send(HELLO)


@pytest.mark.parametrize("streams", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(text("hello to you, too: äöü"), id="words"),
        pytest.param(tool_uses(("a", "look", {"at": "it"}), ("b", "look", {"at": [1, "ü"]})), id="calls"),
        pytest.param(
            Answer(content=[{"type": "text", "text": "half an ans"}], stop="max_tokens"), id="cut off"
        ),
    ],
)
async def test_an_answer_is_the_same_streamed_or_whole(answer: Answer, streams: bool) -> None:
    reply = await sent(answer, streams=streams)
    assert (list(reply.content), reply.stop) == (list(answer.content), answer.stop)
    assert reply.usage == Usage(input=11, cache_read=3, output=7)


async def test_an_answer_that_takes_longer_than_a_silence_may_last_comes_through_if_it_goes_on() -> None:
    never = threading.Event()

    def pause_briefly() -> None:
        never.wait(STALL_S / 5)

    reply = await sent(text("a long and thoughtful answer, word by word"), between=pause_briefly)
    assert reply.text == "a long and thoughtful answer, word by word"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        pytest.param(text("never whole").but("cut-midway"), "cut", id="cut"),
        pytest.param(text("never whole").but("error-midway"), "server", id="error"),
        pytest.param(Answer(status=429), "rate_limited", id="429"),
    ],
)
async def test_an_answer_that_is_not_whole_is_a_fault_and_never_half_an_answer(
    answer: Answer, kind: str
) -> None:
    with pytest.raises(ModelFault) as caught:
        await sent(answer)
    assert caught.value.kind == kind


async def test_a_whole_launch_is_played_by_models_of_a_local_server(server: Server, tmp_path: Path) -> None:
    suite = live_suite(tmp_path / "suite", count=2)
    named = (suite / "suite.yaml").read_text()
    named = named.replace("actor: actor-model", '"actor": "openai:actor-model"')
    (suite / "suite.yaml").write_text(named.replace("agent: agent-model", '"agent": "openai:agent-model"'))
    with completions_api(players()) as api:
        done = await anyio.to_thread.run_sync(
            lambda: redteam(
                *("launch", suite, "--server", dsn_of(server), "--out", tmp_path / "out", "--json"),
                OPENAI_BASE_URL=api.base_url,
            )
        )
    report = report_of(done)
    assert report["outcomes"] == {"pass": 2}, done.stderr
    assert report["notice"] == "live: actor openai:actor-model, agent openai:agent-model"
    assert sum(row["calls"] for row in report["usage"]["rows"]) == api.answers == len(api.requests)
    assert sum(row["output"] for row in report["usage"]["rows"]) == 7 * api.answers
    assert {json.dumps(request.get("stream_options")) for request in api.requests} == {
        '{"include_usage": true}'
    }
