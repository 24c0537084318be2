"""Reads a seed's statements before any runs: refuses what leaves the database, collects roles it needs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pglast import ast, enums, parse_sql
from pglast.parser import ParseError, parse_plpgsql_json, parse_sql_json
from pglast.visitors import Visitor

from redteam_forker.errors import SeedError
from redteam_forker.seeds.refusals import refused_command, refused_statement, sets_role_aside
from redteam_forker.seeds.statements import Piece, ScriptError, split_script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from redteam_forker.seeds.script import Seed, SeedFile

__all__ = ["Lint", "Script", "lint"]

_SHOWN = 8
_DML = re.compile(r"(?:insert|update|delete|values|select|merge)\b", re.IGNORECASE)
_LARGE = 20_000
_SUSPECT = re.compile(r"\b(?:dblink|lo_|pg_)\w*\s*\(", re.IGNORECASE)
_VARIABLE = re.compile(r"(?<![:\w]):(?:'(\w+)'|\"(\w+)\"|(\w+))")
_LITERAL = re.compile(r"\A\s*'((?:[^']|'')*)'\s*\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A file as it is given to psql.

    Attributes:
        name: the file's name.
        data: its bytes; statements about roles are blanked, line by line, so that line numbers stay.
        pieces: what is in it, for mapping an error's line to a statement's.
    """

    name: str
    data: bytes = field(repr=False)
    pieces: tuple[Piece, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lint:
    """A seed that may be loaded.

    Attributes:
        roles: role names that it refers to or creates, sorted; those that are missing must be made, without
            login, before the seed is loaded. PUBLIC, CURRENT_USER and Postgres' own pg_* are not among them.
        set_aside: `file:line: CREATE ROLE name` for each statement about a role that is not run.
        scripts: the files as they are loaded.
    """

    roles: tuple[str, ...]
    set_aside: tuple[str, ...]
    scripts: tuple[Script, ...]


@lru_cache(maxsize=8)
def lint(seed: Seed) -> Lint:
    """Check every statement of a seed; nothing is run. Takes about 0.3 s for 500 kB of statements.

    Raises:
        SeedError: with file, line, reason and the way out of each refusal (the first eight).
    """
    checks = [_Check(file) for file in seed.files]
    for check in checks:
        check.run()
    refused = [refusal for check in checks for refusal in check.refused]
    if refused:
        more = f"\n... and {len(refused) - _SHOWN} more" if len(refused) > _SHOWN else ""
        raise SeedError("\n".join(refused[:_SHOWN]) + more)
    return Lint(
        roles=tuple(sorted({role for check in checks for role in check.roles})),
        set_aside=tuple(line for check in checks for line in check.set_aside),
        scripts=tuple(check.script() for check in checks),
    )


class _Roles(Visitor):
    """Collects the names of roles from one statement."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def add(self, name: str | None) -> None:
        if name and not name.startswith("pg_") and name.lower() not in ("none", "default"):
            self.names.add(name)

    # pglast dispatches on the names of these methods.
    def visit_RoleSpec(self, _ancestors: Any, node: Any) -> None:  # noqa: N802
        if node.roletype == enums.RoleSpecType.ROLESPEC_CSTRING:
            self.add(node.rolename)

    def visit_CreateRoleStmt(self, _ancestors: Any, node: Any) -> None:  # noqa: N802
        self.add(node.role)

    def visit_GrantRoleStmt(self, _ancestors: Any, node: Any) -> None:  # noqa: N802
        for privilege in node.granted_roles:
            self.add(privilege.priv_name)

    def visit_VariableSetStmt(self, _ancestors: Any, node: Any) -> None:  # noqa: N802
        if node.name in ("role", "session_authorization") and node.args:
            self.add(getattr(node.args[0].val, "sval", None))


class _Check:
    """One file's refusals, roles and blanked text."""

    def __init__(self, file: SeedFile) -> None:
        self._file = file
        self._text = file.text
        self._pieces: list[Piece] = []
        self._blanked: list[Piece] = []
        self.refused: list[str] = []
        self.roles: set[str] = set()
        self.set_aside: list[str] = []

    def run(self) -> None:
        try:
            self._pieces = split_script(self._text)
        except ScriptError as error:
            self._refuse(error.line, str(error))
            return
        variables = any(piece.meta in ("set", "gset") for piece in self._pieces)
        for piece in self._pieces:
            if piece.meta is not None:
                reason = refused_command(piece.meta, piece.text)
                if reason:
                    self._refuse(piece.line, reason)
            else:
                self._statement(piece, variables=variables)

    def script(self) -> Script:
        parts, at = [], 0
        for piece in self._blanked:
            parts += [
                self._text[at : piece.start],
                re.sub(r"[^\n]", " ", self._text[piece.start : piece.end]),
            ]
            at = piece.end
        parts.append(self._text[at:])
        data = "".join(parts).encode(self._file.encoding) if self._blanked else self._file.data
        return Script(name=self._file.name, data=data, pieces=tuple(self._pieces))

    def _refuse(self, line: int, reason: str) -> None:
        self.refused.append(f"{self._file.name}:{line}: {reason}")

    def _statement(self, piece: Piece, *, variables: bool) -> None:
        sql = _VARIABLE.sub(_stand_in, piece.text) if variables else piece.text
        try:
            if len(sql) > _LARGE and _DML.match(sql) and not _SUSPECT.search(sql):
                parse_sql_json(sql)  # long INSERTs: the grammar only, twelve times cheaper than a tree
                return
            statements = [raw.stmt for raw in parse_sql(sql)]
        except ParseError as error:
            self._refuse(piece.line + _newlines_before(sql, error), f"{error.args[0]}; {_unparsed(sql)}")
            return
        for statement in statements:
            self._judge(statement, sql, piece)

    def _judge(self, statement: Any, sql: str, piece: Piece) -> None:
        reason = refused_statement(statement, sql)
        if reason:
            self._refuse(piece.line, reason)
            return
        self.roles |= _roles_of(statement)
        if sets_role_aside(statement):
            self._blanked.append(piece)
            verb, name = (
                ("CREATE", statement.role)
                if isinstance(statement, ast.CreateRoleStmt)
                else ("ALTER", statement.role.rolename or "CURRENT_USER")
            )
            self.set_aside.append(f"{self._file.name}:{piece.line}: {verb} ROLE {name}")
        for inner, inner_sql in _inside(statement, sql):
            inner_reason = refused_statement(inner, inner_sql)
            if inner_reason:
                self._refuse(piece.line, f"in the body that begins here: {inner_reason}")
            elif isinstance(statement, ast.DoStmt):
                self.roles |= _roles_of(inner)


def _stand_in(match: re.Match[str]) -> str:
    """Something of the same place in the grammar for a psql variable, whose value is not known."""
    literal, quoted, bare = match.groups()
    return f"'{literal}'" if literal else f'"{quoted or bare}"'


def _newlines_before(sql: str, error: ParseError) -> int:
    location = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], int) else 0
    return sql.count("\n", 0, max(location, 0))


def _unparsed(sql: str) -> str:
    placeholder = re.search(r"@\w+|\{\{.*?\}\}|\$\{\w+\}", sql)
    if placeholder:
        return f"fill in the placeholder {placeholder.group()} first"
    return "mend the SQL; it must parse as PostgreSQL 18's"


def _roles_of(statement: Any) -> set[str]:
    if isinstance(statement, ast.InsertStmt | ast.SelectStmt | ast.CopyStmt | ast.CreateFunctionStmt):
        return set()
    roles = _Roles()
    roles(statement)
    return roles.names


def _inside(statement: Any, sql: str) -> Iterator[tuple[Any, str]]:
    """The statements in the body of a DO block or a function, as far as they can be read before they run."""
    if isinstance(statement, ast.DoStmt):
        options, default = statement.args, "plpgsql"
    elif isinstance(statement, ast.CreateFunctionStmt):
        options, default = statement.options, "sql"
    else:
        return
    named = {option.defname: option.arg for option in options or ()}
    language = named["language"].sval.lower() if "language" in named else default
    if language == "sql" and "as" in named:
        yield from _parsed(named["as"][0].sval)
    elif language == "plpgsql":
        try:
            body = json.loads(parse_plpgsql_json(sql))
        except (ParseError, ValueError):
            return  # the server's own check finds out; this one is for what can be read
        for query in _queries(body):
            yield from _parsed(query)


def _queries(node: Any) -> Iterator[str]:
    """Static SQL of a PL/pgSQL tree, and EXECUTE of a constant."""
    if isinstance(node, list):
        for item in node:
            yield from _queries(item)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name == "PLpgSQL_stmt_execsql":
                yield value["sqlstmt"]["PLpgSQL_expr"]["query"]
            elif name == "PLpgSQL_stmt_perform":
                yield value["expr"]["PLpgSQL_expr"]["query"]
            elif name == "PLpgSQL_stmt_dynexecute":
                constant = _LITERAL.match(value["query"]["PLpgSQL_expr"]["query"])
                if constant:
                    yield constant.group(1).replace("''", "'")
            else:
                yield from _queries(value)


def _parsed(sql: str) -> list[tuple[Any, str]]:
    try:
        return [(raw.stmt, sql) for raw in parse_sql(sql)]
    except ParseError:
        return []
