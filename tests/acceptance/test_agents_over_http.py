"""`agent: {url: ...}`: a real service in a process of its own, under a whole `redteam launch`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from support.cli import ROOT, dsn_of, environment, redteam, report_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from redteam_forker import Server

CLINIC = ROOT / "seeds" / "clinic"
TESTS = ROOT / "tests"


class Deployed:
    """A service that runs, a suite that has it as its agent, and the key that it trusts."""

    def __init__(self, folder: Path, url: str, dsn: str, key: Path) -> None:
        self.url, self.dsn, self.key = url, dsn, key
        self.suite = folder / "clinic"
        self.out = folder / "runs"
        self.env = {"REDTEAM_SIGNING_KEY": str(key)}
        shutil.copytree(CLINIC, self.suite)

    def elsewhere(self, folder: Path, **spec: Any) -> Deployed:
        """The same service for another suite and its runs."""
        other = Deployed(folder, self.url, self.dsn, self.key)
        other.agent(**spec)
        return other

    def agent(self, path: str = "/chat", **spec: Any) -> None:
        """Write the suite's agent."""
        data = yaml.safe_load((CLINIC / "suite.yaml").read_text())
        data["agent"] = {"url": self.url + path, "timeout_s": 20, **spec}
        (self.suite / "suite.yaml").write_text(yaml.safe_dump(data))

    def trust(self) -> str:
        """What `redteam trust` prints."""
        done = redteam("trust", self.suite, "--server", self.dsn, **self.env)  # type: ignore[arg-type]
        assert done.returncode == 0, done.stderr
        return done.stdout

    def launch(self, *options: object) -> dict[str, Any]:
        """Launch the suite, and return its report."""
        given = ("--server", self.dsn, "--json", "--out", self.out, *options)
        done = redteam("launch", self.suite, *given, **self.env)  # type: ignore[arg-type]
        assert done.returncode in (0, 1, 3), done.stderr
        return report_of(done)

    def events(self) -> dict[str, list[dict[str, Any]]]:
        """The events of each conversation of the only run."""
        return events_of(self.out)


def events_of(out: Path) -> dict[str, list[dict[str, Any]]]:
    (run,) = out.iterdir()
    return {
        trace.parent.name: [json.loads(line) for line in trace.read_text().splitlines()]
        for trace in sorted(run.glob("conversations/*/trace.jsonl"))
    }


@contextlib.contextmanager
def deployed(
    server: Server,
    folder: Path,
    *faults: str,
    trust: str | None = None,
    traces: str = "",
    **spec: Any,
) -> Iterator[Deployed]:
    """Run the service for the block; `spec` is the suite's agent, `faults` are of the service."""
    with socket.socket() as listener, (folder / "service.log").open("wb") as log:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        service = Deployed(folder, url, dsn_of(server), folder / "key.pem")
        service.agent(**spec)
        process = subprocess.Popen(
            [sys.executable, "-m", "support.clinic_service", str(listener.fileno()), *faults],
            cwd=CLINIC,
            env=environment(
                PYTHONPATH=os.pathsep.join([str(CLINIC), str(TESTS)]),
                TRACES_URL=traces,
                REDTEAM_TRUST=trust if trust is not None else service.trust(),
            ),
            pass_fds=[listener.fileno()],
            stdout=log,
            stderr=log,
        )
        try:
            yield service
        finally:
            # One that has not yet begun to serve has no handler, and ends all the same.
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


def fault_of(report: dict[str, Any]) -> tuple[str, str]:
    """The outcome's cause and message of a launch of one conversation."""
    (one,) = report["conversations"]
    assert one["outcome"] == "infra-fault", one
    return one["fault"]["cause"], one["fault"]["message"]


def test_twenty_conversations_at_once_have_a_fork_each_and_the_outcomes_of_the_same_agent_in_a_process(
    server: Server, tmp_path: Path
) -> None:
    with deployed(server, tmp_path) as service:
        report = service.launch("--parallel", 20)
        events = service.events()
    assert (report["planned"], report["finished"], report["forks"]) == (20, 20, 20)
    assert set(report["outcomes"]) == {"pass", "fail"}, report
    given = ("--server", dsn_of(server), "--json", "--parallel", 10, "--out", tmp_path / "local")
    local = report_of(redteam("launch", CLINIC, *given))
    assert verdicts(report) == verdicts(local)
    probed = [event for trace in events.values() for event in trace if event["kind"] == "probed"]
    assert len({event["database"] for event in probed}) == 20
    assert all(event["database"] == event["fork"] for event in probed)
    # What the service reported is what the agent process records, event by event.
    assert {name: told(trace) for name, trace in events.items()} == {
        name: told(trace) for name, trace in events_of(tmp_path / "local").items()
    }
    for trace in events.values():
        turns = [event["turn"] for event in trace]
        assert turns == sorted(turns)
        calls = [event["call"] for event in trace if event["kind"] == "tool_call"]
        assert len(set(calls)) == len(calls)
        assert all(event["xid"] is not None for event in trace if event["kind"] == "tool_call")


def told(trace: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What happened in a conversation, without what no two runs have in common: times, numbers, forks."""
    return [(event["turn"], event["kind"], event.get("name"), event.get("text")) for event in trace]


def verdicts(report: dict[str, Any]) -> dict[str, list[tuple[str, str]]]:
    return {
        one["id"]: [(verdict["rule"], verdict["status"]) for verdict in one["verdicts"]]
        for one in report["conversations"]
    }


@pytest.mark.parametrize(
    ("path", "preset"), [("/v1/chat/completions", "openai"), ("/v1/messages", "anthropic")]
)
def test_presets_are_what_services_of_their_shape_speak(
    standing: Deployed, tmp_path: Path, path: str, preset: str
) -> None:
    report = standing.elsewhere(tmp_path, path=path, preset=preset).launch("--count", 3)
    assert set(report["outcomes"]) <= {"pass", "fail"}, report
    assert report["finished"] == 3


@pytest.fixture(scope="module")
def standing(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """One service for many launches."""
    with deployed(server, tmp_path_factory.mktemp("standing")) as service:
        yield service


# Cause, what the message must say, and the suite's agent.
FAULTS = [
    pytest.param("redirect", "307, a redirect", {"path": "/chat?fault=redirects"}, id="redirect"),
    pytest.param("status", "503", {"path": "/chat?fault=is_down"}, id="status"),
    pytest.param("status", "404", {"path": "/nowhere"}, id="not-found"),
    pytest.param("reply", "is no JSON", {"path": "/chat?fault=speaks_html"}, id="no-json"),
    pytest.param("reply", "is empty", {"path": "/chat?fault=says_nothing"}, id="empty"),
    pytest.param("reply", "is no text", {"path": "/chat?fault=answers_a_number"}, id="no-text"),
    pytest.param("reply", "has no '/answer'", {"reply": "/answer"}, id="no-pointer"),
    pytest.param("too_large", "longer than", {"path": "/chat?fault=talks_on"}, id="too-large"),
    pytest.param("hang", "within 1 s", {"path": "/chat?fault=hangs", "timeout_s": 1}, id="hang"),
    pytest.param("refused", "redteam trust", {"audience": "another"}, id="other-audience"),
    pytest.param("unmocked", "has no mock", {"path": "/chat?fault=calls_out"}, id="unmocked"),
    pytest.param("unmocked", "has no mock", {"path": "/chat?fault=calls_out_late"}, id="unmocked-late"),
]


@pytest.mark.parametrize(("cause", "says", "spec"), FAULTS)
def test_what_goes_wrong_between_us_and_the_service_is_no_verdict(
    standing: Deployed, tmp_path: Path, cause: str, says: str, spec: dict[str, Any]
) -> None:
    found, message = fault_of(standing.elsewhere(tmp_path, **spec).launch("--count", 1))
    assert (found, says in message) == (cause, True), message


def test_a_service_without_the_middleware_is_told_nothing(server: Server, tmp_path: Path) -> None:
    with deployed(server, tmp_path, "never_armed") as service:
        cause, message = fault_of(service.launch("--count", 1))
        (trace,) = service.events().values()
    assert (cause, "middleware" in message) == ("probe", True), message
    assert not [event for event in trace if event["kind"] in ("user", "probed")]


def test_a_service_that_is_not_there_is_told_as_such(server: Server, tmp_path: Path) -> None:
    with deployed(server, tmp_path) as service:
        pass
    assert fault_of(service.launch("--count", 1))[0] == "unreachable"


def test_a_collector_that_the_service_was_not_told_of_is_refused_before_anything_is_said(
    server: Server, tmp_path: Path
) -> None:
    with deployed(server, tmp_path) as service:
        # The trust allows http://127.0.0.1; the token names another origin.
        report = service.launch("--count", 1, "--collector-url", "http://localhost:4318")
        (trace,) = service.events().values()
    assert fault_of(report)[0] == "refused"
    assert [event["kind"] for event in trace if event["kind"] in ("user", "probed")] == []
    assert "names a collector that this process does not allow" in (tmp_path / "service.log").read_text()


def test_events_that_do_not_reach_the_collector_are_noticed(server: Server, tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        with deployed(server, tmp_path) as service:
            cause, message = fault_of(service.launch("--count", 1, "--collector-url", url))
    assert cause == "events"
    assert url in message
    assert "are lost: collector" in (tmp_path / "service.log").read_text()


def test_what_a_service_reports_after_its_reply_is_in_the_evidence_of_that_turn(
    server: Server, tmp_path: Path
) -> None:
    with deployed(server, tmp_path, "works_late") as service:
        report = service.launch("--count", 1)
        (trace,) = service.events().values()
    assert set(report["outcomes"]) <= {"pass", "fail"}
    late = [event["turn"] for event in trace if event.get("name") == "late_mail"]
    assert late == [event["turn"] for event in trace if event["kind"] == "user"]


def test_a_handoff_is_an_event_and_is_shown(server: Server, tmp_path: Path) -> None:
    with deployed(server, tmp_path, "hands_off") as service:
        service.launch("--count", 1)
        (trace,) = service.events().values()
        shown = redteam("show", next(service.out.iterdir()), "c001")
    (swap,) = [event for event in trace if event["kind"] == "swap"]
    assert (swap["turn"], swap["from"], swap["to"]) == (1, "greeter", "front desk")
    assert "greeter → front desk" in shown.stdout


def test_no_secret_of_token_fork_or_header_is_in_evidence_log_or_output(
    server: Server, tmp_path: Path
) -> None:
    secret = "sesame-7f3kqa-sesame"
    with deployed(server, tmp_path, headers={"Authorization": "Bearer ${DESK_KEY}"}) as service:
        service.env["DESK_KEY"] = secret
        report = service.launch("--count", 2)
        log = (tmp_path / "service.log").read_text()
    assert set(report["outcomes"]) <= {"pass", "fail"}
    stored = "".join(path.read_text() for path in service.out.rglob("*") if path.is_file())
    for text in (stored, log, json.dumps(report)):
        for hidden in (secret, "eyJ", "postgresql://"):
            assert hidden not in text


def test_a_header_whose_variable_is_missing_ends_the_launch_before_a_fork(
    server: Server, tmp_path: Path
) -> None:
    with deployed(server, tmp_path, headers={"X-Key": "${NOT_SET_ANYWHERE}"}) as service:
        done = redteam("launch", service.suite, "--server", service.dsn, **service.env)  # type: ignore[arg-type]
    assert (done.returncode, "NOT_SET_ANYWHERE, which is not set" in done.stderr) == (2, True), done.stderr


def test_without_a_signing_key_the_launch_says_how_to_make_one(server: Server, tmp_path: Path) -> None:
    with deployed(server, tmp_path, trust="") as service:
        done = redteam("launch", service.suite, "--server", service.dsn, **service.env)  # type: ignore[arg-type]
    assert (done.returncode, "redteam trust" in done.stderr) == (2, True), done.stderr


def test_spans_of_an_instrumented_service_are_events_and_no_call_is_told_twice(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    traces = f"http://127.0.0.1:{port}/v1/traces"
    with deployed(server, tmp_path, "is_traced", traces=traces, spans=True) as service:
        report = service.launch("--count", 2, "--parallel", 2, "--collector", f"127.0.0.1:{port}")
        conversations = service.events()
    assert set(report["outcomes"]) <= {"pass", "fail"}, report
    for events in conversations.values():
        for turn in range(1, max(event["turn"] for event in events) + 1):
            # The desk's own tools come after these, in some turns.
            mine = [event for event in events if event["turn"] == turn and event["kind"] in TOLD]
            names = [(event["kind"], event.get("name")) for event in mine]
            assert names[:9] == [
                ("user", None),
                ("model_call", None),
                ("tool_call", "weather"),
                ("tool_result", "weather"),
                ("tool_call", "traffic"),
                ("tool_error", "traffic"),
                # Told by the SDK and by spans, and here once, with the SDK's transaction ids.
                ("tool_call", "today"),
                ("tool_result", "today"),
                ("tool_call", "list_insurers"),
            ]
            _, model, asked, answered, _, error, *own = mine
            assert (model["model"], model["stop"]) == ("m-1-2026", "tool_calls")
            assert model["usage"] == {"input": 120, "output": 7}
            assert (asked["arguments"], answered["value"]) == ({"day": "Thursday"}, {"rain": True})
            assert (error["type"], error["message"]) == ("TimeoutError", "no answer")
            assert all(event["xid"] is not None for event in own if event["kind"] == "tool_call")
            assert names[-1] == ("agent", None)
        (swap,) = [event for event in events if event["kind"] == "swap"]
        assert (swap["turn"], swap["from"], swap["to"]) == (2, "greeter", "front desk")


TOLD = {"user", "agent", "model_call", "tool_call", "tool_result", "tool_error"}


def test_spans_that_are_waited_for_and_do_not_come_are_a_fault_of_ours(
    server: Server, tmp_path: Path
) -> None:
    port = free_port()
    traces = f"http://127.0.0.1:{port}/v1/traces"
    # The service is instrumented, but begins traces of its own.
    with deployed(server, tmp_path, "traces_elsewhere", traces=traces, spans=True) as service:
        cause, message = fault_of(service.launch("--count", 1, "--collector", f"127.0.0.1:{port}"))
    assert (cause, "traceparent" in message) == ("spans", True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
