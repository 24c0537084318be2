"""Agents that are any program: on their own fork, on a leash, and strict in what they may answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio.to_thread
import pytest
from support.cli import REDTEAM, dsn_of, environment, redteam, report_of
from support.processes import is_alive, until
from support.tasked import write_tasked_suite

from redteam_forker import list_forks

if TYPE_CHECKING:
    from redteam_forker import Server

# A foreign program as far as we are concerned: it shares nothing with us but the lines and the variable.
PROGRAM = """
import json, os, re, subprocess, sys, time
import psycopg

def do(name):
    with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
        connection.execute("UPDATE people SET done = done + 1 WHERE name = %s", (name,))

def say(text):
    print(text, flush=True)

for line in sys.stdin:
    asked = json.loads(line)
    assert set(asked) == {"conversation", "turn", "text"}
    name = re.search(r"it, ([\\w-]+)", asked["text"])
    if name is None:
        say(json.dumps({"reply": "Goodbye."}))
        continue
    match name[1].split("-")[0]:
        case "crash":
            os.kill(os.getpid(), 11)
        case "exit":
            sys.exit("nothing works any more")
        case "hang":
            time.sleep(3600)
        case "chatty":
            say("debugging")
        case "shape":
            say(json.dumps({"reply": 7}))
        case "twice":
            say(json.dumps({"reply": "Done."}))
        case "huge":
            sys.stdout.write("x" * (17 * 2**20))
        case "bytes":
            os.write(1, bytes([255, 254, 10]))
        case "closed":
            os.close(1)
            time.sleep(3600)
        case "echo":
            say(json.dumps({"reply": os.environ["DATABASE_URL"]}))
            sys.stderr.write(os.environ["DATABASE_URL"] + "\\n")
            do(name[1])
            continue
        case "daemon":
            subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
    do(name[1])
    say(json.dumps({"reply": "Done."}))
"""


def _suite(folder: Path, names: list[str], command: list[str], more: str = "", **parts: object) -> Path:
    suite = write_tasked_suite(folder, names, agent=PROGRAM, count=len(names), **parts)
    lines = (suite / "suite.yaml").read_text().splitlines()
    timeout = parts.get("timeout_s", 20)
    agent = f"agent: {{command: {json.dumps(command)}, env: DATABASE_URL, timeout_s: {timeout}{more}}}"
    lines = [agent if line.startswith("agent:") else line for line in lines]
    (suite / "suite.yaml").write_text("\n".join(lines) + "\n")
    return suite


async def _launch(suite: Path, server: Server, out: Path, **env: Any) -> subprocess.CompletedProcess[str]:
    return await anyio.to_thread.run_sync(
        lambda: redteam(
            "launch", suite, "--server", dsn_of(server), "--parallel", 6, "--out", out, "--json", **env
        )
    )


PYTHON = [sys.executable, "agent.py"]
CULPRITS = {
    "crash": ("crash", "was ended by SIGSEGV"),
    "exit": ("crash", "ended with status 1; its last words on standard error: nothing works any more"),
    "hang": ("hang", "did not answer within"),
    "chatty": ("protocol", "it wrote 'debugging'"),
    "shape": ("protocol", 'with one line {"reply": "..."}'),
    "twice": ("protocol", "wrote without being asked"),
    "huge": ("protocol", "longer than"),
    "bytes": ("protocol", "it wrote"),
    "closed": ("crash", "closed its standard output"),
}


async def test_every_way_to_break_ends_its_own_conversation_with_its_cause_and_no_other(
    server: Server, tmp_path: Path
) -> None:
    before = set(await list_forks(server))
    names = [*CULPRITS, "good-1", "echo", "daemon", "good-2"]
    suite = _suite(tmp_path / "suite", names, PYTHON, timeout_s=8)
    done = await _launch(suite, server, tmp_path / "out")
    told = {one["persona"]: one for one in report_of(done)["conversations"]}
    for number, name in enumerate(names, start=1):
        one = told[str(number)]
        if name not in CULPRITS:
            assert one["outcome"] == "pass", (name, one)
            continue
        cause, says = CULPRITS[name]
        assert one["outcome"] == "infra-fault", (name, one)
        assert one["fault"]["cause"] == cause, (name, one)
        assert says in one["fault"]["message"], (name, one)
    assert set(await list_forks(server)) <= before  # a killed launcher's may have been swept
    assert _of_suite(suite) == []


async def test_the_forks_secret_is_struck_out_of_what_the_program_says(
    server: Server, tmp_path: Path
) -> None:
    suite = _suite(tmp_path / "suite", ["echo"], PYTHON)
    done = await _launch(suite, server, tmp_path / "out")
    assert report_of(done)["outcomes"] == {"pass": 1}
    run = next((tmp_path / "out").iterdir())
    reply = next(event["text"] for event in _events(run) if event["kind"] == "agent")
    assert ":[secret]@" in reply
    assert ":[secret]@" in (run / "agent.log").read_text()


def _events(run: Path) -> list[dict[str, Any]]:
    traces = sorted(run.glob("conversations/*/trace.jsonl"))
    return [json.loads(line) for path in traces for line in path.read_text().splitlines()]


def _of_suite(suite: Path) -> list[int]:
    """The living processes that were started in the suite's folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            here = Path(os.readlink(entry / "cwd")) == suite
        except OSError:
            continue
        if here and is_alive(int(entry.name)):
            found.append(int(entry.name))
    return found


SHELL = """
while read -r line; do
    name=$(printf '%s' "$line" | sed -n 's/.*it, \\([a-z0-9-]*\\).*/\\1/p')
    if [ -n "$name" ]; then
        "$PSQL" -X -q "$DATABASE_URL" -c "UPDATE people SET done = done + 1 WHERE name = '$name'" >&2
    fi
    echo '{"reply": "Done."}'
done
"""
NODE = """
const lines = require("readline").createInterface({ input: process.stdin });
const { execFileSync } = require("child_process");
lines.on("line", (line) => {
  const name = /it, ([a-z0-9-]+)/.exec(JSON.parse(line).text);
  const update = (name) => `UPDATE people SET done = done + 1 WHERE name = '${name}'`;
  const quietly = { stdio: ["ignore", "ignore", "inherit"] };
  if (name) execFileSync(process.env.PSQL, ["-Xq", process.env.DATABASE_URL, "-c", update(name[1])], quietly);
  console.log(JSON.stringify({ reply: "Done." }));
});
"""


@pytest.mark.parametrize("language", ["sh", "node"])
async def test_programs_of_other_languages_work_on_their_own_fork(
    server: Server, tmp_path: Path, language: str
) -> None:
    if shutil.which(language) is None:
        pytest.skip(f"there is no {language} here")
    command = {"sh": ["sh", "desk.sh"], "node": ["node", "desk.js"]}[language]
    suite = _suite(tmp_path / "suite", ["one", "two", "three"], command, ", probe: [sh, probe.sh]")
    (suite / "desk.sh").write_text(SHELL)
    (suite / "desk.js").write_text(NODE)
    (suite / "probe.sh").write_text('"$PSQL" -X -A -t "$DATABASE_URL" -c "SELECT current_database()"\n')
    psql = server.psql("postgres")
    done = await _launch(suite, server, tmp_path / "out", PSQL=str(psql.argv[0]))
    assert done.returncode == 0, (done.stdout, done.stderr)
    asked = [
        event["asked"] for event in _events(next((tmp_path / "out").iterdir())) if event["kind"] == "probe"
    ]
    assert asked == ["probe sh"] * 3


@pytest.mark.parametrize(
    ("command", "more", "says"),
    [
        pytest.param(["./nothing-there"], "", "'./nothing-there' cannot be started", id="not-there"),
        pytest.param([sys.executable, "-c", "import nothing_there"], "", "No module named", id="import"),
        pytest.param(PYTHON, ", probe: [echo, production]", "leads to database 'production'", id="elsewhere"),
        pytest.param(PYTHON, ', probe: ["false"]', "'false' ended with status 1", id="probe-fails"),
    ],
)
async def test_a_program_that_cannot_hold_a_conversation_ends_the_launch_before_the_first(
    server: Server, tmp_path: Path, command: list[str], more: str, says: str
) -> None:
    before = set(await list_forks(server))
    suite = _suite(tmp_path / "suite", ["one", "two"], command, more)
    done = await _launch(suite, server, tmp_path / "out")
    assert (done.returncode, done.stderr.count("redteam:")) == (2, 1), done.stderr
    assert says in done.stderr
    assert list((tmp_path / "out").iterdir()) == []
    assert set(await list_forks(server)) <= before  # a killed launcher's may have been swept


async def test_the_program_gets_no_address_of_production_from_the_launcher(
    server: Server, tmp_path: Path
) -> None:
    printing = [sys.executable, "-c", "import os, sys; sys.stderr.write(repr(dict(os.environ)))"]
    suite = _suite(tmp_path / "suite", ["one"], PYTHON, f", probe: {json.dumps(printing)}")
    production = {
        "DATABASE_URL": "postgresql://app:hunter22@prod.example/app",
        "REPLICA": "jdbc:postgresql://replica.example/app?password=hunter22",
        "SETTINGS": '{"db": "postgres://app:hunter22@prod.example/app"}',
        "PGPASSFILE": "/root/hunter22",
        "POSTGRES_PASSWORD": "hunter22",
    }
    done = await _launch(suite, server, tmp_path / "out", **production)
    assert done.returncode == 2  # the probe says nothing
    assert "leads to database ''" in done.stderr
    assert "hunter22" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
async def test_nothing_of_the_program_outlives_a_launcher_that_is_stopped(
    server: Server, tmp_path: Path, number: signal.Signals
) -> None:
    program = (
        "import os, subprocess, sys, time\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'], start_new_session=True)\n"
        "if not sys.stdin.readline(): sys.exit()  # the rehearsal\n"
        "open(f'pid-{os.getpid()}', 'w').close()\n"
        "time.sleep(3600)\n"
    )
    suite = _suite(tmp_path / "suite", ["one", "two"], [sys.executable, "slow.py"])
    (suite / "slow.py").write_text(program)
    launcher = subprocess.Popen(  # noqa: ASYNC220 - starting it does not block
        [str(REDTEAM), "launch", str(suite), "--server", dsn_of(server), "--out", str(tmp_path / "out")],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        await until(lambda: len([*suite.glob("pid-*")]) == 2 and len(_of_suite(suite)) >= 4)
        os.killpg(launcher.pid, number)
        await anyio.to_thread.run_sync(lambda: launcher.wait(30))
        await until(lambda: _of_suite(suite) == [])
    finally:
        if launcher.poll() is None:
            launcher.kill()
            launcher.wait()


SERVER = """
import json, os, re, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
import psycopg

class Desk(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = re.search(r"it, ([\\w-]+)", asked["message"])
        if name and name[1] == "crash":
            os._exit(4)
        if name:
            with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
                connection.execute("UPDATE people SET done = done + 1 WHERE name = %s", (name[1],))
        body = json.dumps({"reply": "Done."} if name is None or name[1] != "odd" else {}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        print("served")

HTTPServer(("127.0.0.1", int(sys.argv[1])), Desk).serve_forever()
"""


async def test_a_program_that_serves_http_is_asked_on_a_port_of_its_own(
    server: Server, tmp_path: Path
) -> None:
    command = [sys.executable, "server.py", "{port}"]
    suite = _suite(
        tmp_path / "suite",
        ["one", "two", "crash", "odd", "three"],
        command,
        ", serves: 'http://127.0.0.1:{port}/chat'",
    )
    (suite / "server.py").write_text(SERVER)
    done = await _launch(suite, server, tmp_path / "out")
    told = {one["persona"]: one for one in report_of(done)["conversations"]}
    assert [told[str(n)]["outcome"] for n in (1, 2, 5)] == ["pass"] * 3
    assert told["3"]["fault"]["cause"] == "crash"
    assert "ended with status 4" in told["3"]["fault"]["message"]
    assert told["4"]["fault"]["cause"] == "reply"
    assert _of_suite(suite) == []


async def test_a_program_that_ends_before_it_listens_ends_the_launch(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such port')", "{port}"]
    suite = _suite(tmp_path / "suite", ["one"], command, ", serves: 'http://127.0.0.1:{port}/chat'")
    done = await _launch(suite, server, tmp_path / "out")
    assert done.returncode == 2
    assert "the program ended with status 1; its last words on standard error: no such port" in done.stderr


async def test_faults_of_external_tools_cannot_be_scripted_for_a_program(
    server: Server, tmp_path: Path
) -> None:
    suite = _suite(tmp_path / "suite", ["one"], PYTHON)
    text = (suite / "suite.yaml").read_text()
    (suite / "suite.yaml").write_text(
        text.replace("    rubric:", "    externals: {sms: bounce}\n    rubric:")
    )
    done = await _launch(suite, server, tmp_path / "out")
    assert done.returncode == 2
    assert "externals script the faults of @external functions" in done.stderr
