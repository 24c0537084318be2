"""What a statement says inside: calls, names of roles, the SQL in bodies of functions and DO blocks."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pglast import ast, enums, parse_sql
from pglast.parser import ParseError, parse_plpgsql_json
from pglast.visitors import Visitor

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["calls_of", "dynamic_of", "inside", "roles_of"]

_LITERAL = re.compile(r"\A\s*'((?:[^']|'')*)'\s*\Z")


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


class _Calls(Visitor):
    """Collects the names of called functions, as they are written, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def visit_FuncCall(self, _ancestors: Any, node: Any) -> None:  # noqa: N802  # pglast dispatches on this name
        self.names.append(".".join(part.sval for part in node.funcname))


def roles_of(statement: Any) -> set[str]:
    """Names of the roles that a statement refers to, without PUBLIC, CURRENT_USER and Postgres' own pg_*."""
    if isinstance(statement, ast.InsertStmt | ast.SelectStmt | ast.CopyStmt | ast.CreateFunctionStmt):
        return set()
    roles = _Roles()
    roles(statement)
    return roles.names


def calls_of(statement: Any) -> list[str]:
    """Names of the functions that a statement itself calls, qualified as written."""
    calls = _Calls()
    calls(statement)
    return calls.names


def inside(statement: Any, sql: str) -> Iterator[tuple[Any, str]]:
    """The statements in the body of a DO block or a function, as far as they can be read before they run."""
    if not isinstance(statement, ast.DoStmt | ast.CreateFunctionStmt):
        return
    language, body = _language_and_body(statement)
    if language == "sql" and body is not None:
        yield from _parsed(body)
    elif language == "plpgsql":
        for query in _queries(_tree(sql)):
            yield from _parsed(query)


def dynamic_of(statement: Any, sql: str) -> list[str]:
    """The expressions that a DO block gives to EXECUTE and that are known only when it runs."""
    if not isinstance(statement, ast.DoStmt):
        return []
    return [text for text in _executed(_tree(sql)) if not _LITERAL.match(text)]


def _language_and_body(statement: Any) -> tuple[str, str | None]:
    if isinstance(statement, ast.DoStmt):
        options, default = statement.args, "plpgsql"
    else:
        options, default = statement.options, "sql"
    named = {option.defname: option.arg for option in options or ()}
    language = named["language"].sval.lower() if "language" in named else default
    body = named.get("as")
    if isinstance(body, tuple):
        body = body[0]
    return language, getattr(body, "sval", None)


def _tree(sql: str) -> Any:
    try:
        return json.loads(parse_plpgsql_json(sql))
    except (ParseError, ValueError):
        return []  # the server's own check finds out; this one is for what can be read


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


def _executed(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for item in node:
            yield from _executed(item)
    elif isinstance(node, dict):
        for name, value in node.items():
            if name == "PLpgSQL_stmt_dynexecute":
                yield value["query"]["PLpgSQL_expr"]["query"]
            else:
                yield from _executed(value)


def _parsed(sql: str) -> list[tuple[Any, str]]:
    try:
        return [(raw.stmt, sql) for raw in parse_sql(sql)]
    except ParseError:
        return []
