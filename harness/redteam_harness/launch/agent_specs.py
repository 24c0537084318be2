"""`agent:` of suite.yaml: which agent is under test, in one of three kinds, told apart by their first key.

python: module:callable    its code, in a process of ours: shared, or one for each conversation
command: [node, desk.js]   any program, one process for each conversation, the fork's address in a variable
url: https://...           a deployed service, which has the SDK's middleware in front of its tools
"""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from redteam_harness.agents.address import check_template
from redteam_sdk.egress.destinations import parse_destination
from redteam_sdk.errors import UsageError

__all__ = ["AgentSpec", "AnyAgent", "ClaudeSpec", "CommandAgent", "HttpAgent", "PythonAgent"]

_CALLABLE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
_MODULE = r"^[A-Za-z_][\w.]*$"
_VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
_POINTER = r"^(/[^/]*)*$"
_URL = r"^https?://[^\s/?#]+[^\s#]*$"
_KINDS = ("python", "command", "url")


def _destination(text: str) -> str:
    try:
        parse_destination(text)
    except UsageError as error:
        raise ValueError(str(error)) from None
    return text


Template = Annotated[str, AfterValidator(check_template)]
Destination = Annotated[str, AfterValidator(_destination)]
Variable = Annotated[str, Field(pattern=_VARIABLE)]


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ClaudeSpec(_Spec):
    """The same tools in the hands of a model."""

    system: Annotated[str, Field(description="A file with the system prompt.")]
    tools: Annotated[str, Field(pattern=_MODULE, description="The module whose @tool functions it may call.")]
    steps: Annotated[
        int, Field(ge=1, le=200, description="How often it may call tools before it must answer the user.")
    ] = 16


class AgentSpec(_Spec):
    """What every kind of agent has."""

    timeout_s: Annotated[float, Field(gt=0, le=3600, description="The longest it may take for one line.")] = (
        60.0
    )


def _addresses(value: Any) -> Any:
    """One name, or a list of them, is the plain DSN under that name."""
    if isinstance(value, str):
        return {value: "{dsn}"}
    if isinstance(value, list):
        return dict.fromkeys(value, "{dsn}")
    return value


class _Process(AgentSpec):
    """An agent that we start."""

    env: Annotated[
        dict[Variable, Template],
        BeforeValidator(_addresses),
        Field(
            description="Variables that hold the fork's address: a name, or name: template with {dsn}, "
            "{user}, {password}, {host}, {port}, {database}."
        ),
    ] = {}
    pass_env: Annotated[
        list[Variable], Field(description="Variables that it gets although they look like secrets.")
    ] = []
    egress: Annotated[
        list[Destination],
        Field(description="What it may reach beside its fork: `host`, `host:port`, a Unix socket's path."),
    ] = []


class PythonAgent(_Process):
    """Python code that the SDK calls, in a process of its own."""

    python: Annotated[str, Field(pattern=_CALLABLE, description="`module:callable`, answers one line.")]
    claude: Annotated[ClaudeSpec | None, Field(description="Used where `models.agent` and a key are.")] = None
    interpreter: Annotated[str | None, Field(description="A Python that has redteam-sdk; default ours.")] = (
        None
    )
    isolation: Annotated[
        Literal["shared", "process"],
        Field(description="One process for all conversations, or one for each (needed for `env`)."),
    ] = "shared"
    probe: Annotated[
        str | None,
        Field(
            pattern=_CALLABLE,
            description="`module:callable` that answers current_database() as the code's own engine sees it.",
        ),
    ] = None
    stdout: Annotated[
        Literal["fault", "record"], Field(description="A conversation whose agent prints: void, or go on.")
    ] = "fault"

    @property
    def name(self) -> str:
        """What facts and notices call it."""
        return self.python

    @model_validator(mode="after")
    def _alone_with_its_address(self) -> PythonAgent:
        if self.env and self.isolation != "process":
            raise ValueError(
                "env gives a process one fork's address, so it needs `isolation: process`: "
                "one process for each conversation"
            )
        return self


class _Http(_Spec):
    """How a line becomes a request, and a response a reply."""

    preset: Annotated[
        Literal["chat", "openai", "anthropic"],
        Field(
            description="The shape of both: a plain chat, OpenAI's chat completions, Anthropic's Messages."
        ),
    ] = "chat"
    request: Annotated[
        dict[Annotated[str, Field(pattern=_POINTER)], Any],
        Field(
            description="JSON pointer: value, set in the preset's request; {text}, {conversation} and "
            "{turn} in texts, and {history} as a whole value, are filled in."
        ),
    ] = {}
    reply: Annotated[
        str | None,
        Field(pattern=_POINTER, description="JSON pointer to the reply's text; else the preset's."),
    ] = None
    headers: Annotated[
        dict[str, str], Field(description="Headers of each request; ${NAME} is the launcher's variable NAME.")
    ] = {}


class CommandAgent(_Process, _Http):
    """Any program, started once for each conversation, with the fork's address in its environment.

    It reads and writes JSON lines, or, with `serves`, HTTP as its preset says.
    """

    command: Annotated[
        list[str], Field(min_length=1, description="The program and its arguments; {port} is a free port.")
    ]
    serves: Annotated[
        str | None,
        Field(
            pattern=r"^http://(127\.0\.0\.1|localhost):\{port\}", description="Where it takes lines by HTTP."
        ),
    ] = None
    probe: Annotated[
        list[str] | None,
        Field(
            min_length=1,
            description="A program that prints current_database() as the agent's code sees it.",
        ),
    ] = None

    @property
    def name(self) -> str:
        """What facts and notices call it: the program, without its arguments."""
        return self.command[0]

    @model_validator(mode="after")
    def _knows_its_fork(self) -> CommandAgent:
        if not self.env:
            raise ValueError("a command needs env: the variable in which it finds its database's address")
        if self.egress:
            raise ValueError(
                "egress has no effect on a command: the guard is in Python agents; bound any other program "
                "by a network policy (deploy/)"
            )
        return self


class HttpAgent(AgentSpec, _Http):
    """A deployed service: each line is a request with the redteam context in its header."""

    url: Annotated[str, Field(pattern=_URL, description="Where each line is posted to.")]
    audience: Annotated[
        str | None,
        Field(min_length=1, max_length=255, description="The service's name in tokens; default its origin."),
    ] = None
    probe: Annotated[
        str | None,
        Field(
            pattern=_URL,
            description="Where the SDK's middleware answers; default /.well-known/redteam of that origin.",
        ),
    ] = None
    spans: Annotated[
        bool, Field(description="Whether its GenAI spans (OTLP/HTTP) are waited for after each reply.")
    ] = False

    @property
    def name(self) -> str:
        """What facts and notices call it: the address without query."""
        return self.url.partition("?")[0]

    @property
    def origin(self) -> str:
        """Scheme, host and port of the address."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"

    @model_validator(mode="after")
    def _holds_no_secret(self) -> HttpAgent:
        for address in (self.url, self.probe or self.url):
            if "@" in urlsplit(address).netloc:
                raise ValueError("an address holds no user and password; send them with headers: ${NAME}")
        return self


def _kind_of(value: Any) -> str | None:
    if isinstance(value, BaseModel):
        value = value.model_dump(exclude_unset=True)
    named = [kind for kind in _KINDS if isinstance(value, dict) and kind in value]
    return f"<{named[0]}>" if len(named) == 1 else None


def _short(value: Any) -> Any:
    if isinstance(value, str):
        kind, _, rest = value.partition(":")
        if kind != "python" or ":" not in rest:
            raise ValueError(f"expected python:module:callable, not {value!r}")
        return {"python": rest}
    if isinstance(value, dict) and len([kind for kind in _KINDS if kind in value]) != 1:
        raise ValueError("an agent is exactly one of: python, command, url")
    return value


AnyAgent = Annotated[
    Annotated[PythonAgent, Tag("<python>")]
    | Annotated[CommandAgent, Tag("<command>")]
    | Annotated[HttpAgent, Tag("<url>")],
    Discriminator(_kind_of),
    BeforeValidator(_short),
]
"""Any kind of agent. The tags are in angle brackets, so that messages can leave them out of a key's path."""
