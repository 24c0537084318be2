"""What a service does that was instrumented with OpenTelemetry before anybody thought of redteam."""

from __future__ import annotations

import contextlib
import itertools
import os
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from redteam_sdk import record

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

__all__ = ["instrument", "traced_turn"]

_calls = itertools.count(1)


def instrument() -> None:
    """Export every span over OTLP/HTTP, in batches, to where the environment says."""
    provider = TracerProvider()
    exporter = OTLPSpanExporter(endpoint=os.environ["TRACES_URL"])
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=100))
    trace.set_tracer_provider(provider)


@contextlib.asynccontextmanager
async def traced_turn(headers: Mapping[str, str], name: str) -> AsyncIterator[None]:
    """One turn of an agent of this name, with a model call and tools, as the conventions have them."""
    import tools  # type: ignore[import-not-found,unused-ignore]

    tracer = trace.get_tracer("clinic")

    def span(operation: str, **attributes: Any) -> Any:
        given = {name.replace("__", "."): value for name, value in attributes.items()}
        return tracer.start_as_current_span(
            f"{operation} x", attributes={"gen_ai.operation.name": operation, **given}
        )

    with (
        tracer.start_as_current_span("POST /chat", context=extract(headers)),
        span("invoke_agent", gen_ai__agent__name=name),
    ):
        with span("chat", gen_ai__request__model="m-1") as asked:
            asked.set_attribute("gen_ai.response.model", "m-1-2026")
            asked.set_attribute("gen_ai.response.finish_reasons", ["tool_calls"])
            asked.set_attribute("gen_ai.usage.input_tokens", 120)
            asked.set_attribute("gen_ai.usage.output_tokens", 7)
        called: dict[str, Any] = {
            "gen_ai__tool__name": "weather",
            "gen_ai__tool__call__id": f"w-{next(_calls)}",
        }
        with span("execute_tool", **called, gen_ai__tool__call__arguments='{"day": "Thursday"}') as call:
            call.set_attribute("gen_ai.tool.call.result", '{"rain": true}')
        with contextlib.suppress(TimeoutError), span("execute_tool", gen_ai__tool__name="traffic"):
            raise TimeoutError("no answer")
        # Both are reported by the SDK too: the first under the same id, the second with one of the SDK's own.
        same = f"t-{next(_calls)}"
        with (
            span("execute_tool", gen_ai__tool__name="today", gen_ai__tool__call__id=same),
            record.calling(same),
        ):
            await tools.today()
        with span("execute_tool", gen_ai__tool__name="list_insurers"):
            await tools.list_insurers()
        yield
