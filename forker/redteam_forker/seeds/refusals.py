"""What a seed may not do: the statements and backslash commands that reach past the template's own database.

Each reason ends with the way out. The list is about accidents (a dump made for another purpose), not about an
attacker: whoever writes a seed may run code on the server anyway.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pglast import ast, enums
from pglast.visitors import Visitor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["refused_command", "refused_statement", "sets_role_aside"]

_DATABASE = "it reaches another database of the server; remove it: the platform makes the database itself"
_CLUSTER = "it changes the whole server, not the seed's database; remove it"
_FOREIGN = "it lets every fork reach another system; remove it, or make a plain table of the data"
_SERVER_FILE = (
    "it reads or writes a file on the server; put the rows into the script with COPY ... FROM stdin or INSERT"
)
_SUBSCRIPTION = "it connects the template to a publisher; remove it"
_ROLE_RIGHT = (
    "it makes a role that can step out of its database; remove the attribute: "
    "seeds need roles only as owners and grantees"
)

_STATEMENTS: dict[type, tuple[str, str]] = {
    ast.CreatedbStmt: ("CREATE DATABASE", _DATABASE),
    ast.DropdbStmt: ("DROP DATABASE", _DATABASE),
    ast.AlterDatabaseStmt: ("ALTER DATABASE", _DATABASE),
    ast.AlterDatabaseSetStmt: ("ALTER DATABASE", _DATABASE),
    ast.AlterDatabaseRefreshCollStmt: ("ALTER DATABASE", _DATABASE),
    ast.AlterSystemStmt: ("ALTER SYSTEM", _CLUSTER),
    ast.CreateTableSpaceStmt: ("CREATE TABLESPACE", _CLUSTER),
    ast.DropTableSpaceStmt: ("DROP TABLESPACE", _CLUSTER),
    ast.AlterTableSpaceOptionsStmt: ("ALTER TABLESPACE", _CLUSTER),
    ast.LoadStmt: ("LOAD", "it loads a library into the server; remove it"),
    ast.CreateSubscriptionStmt: ("CREATE SUBSCRIPTION", _SUBSCRIPTION),
    ast.AlterSubscriptionStmt: ("ALTER SUBSCRIPTION", _SUBSCRIPTION),
    ast.DropSubscriptionStmt: ("DROP SUBSCRIPTION", _SUBSCRIPTION),
    ast.CreateFdwStmt: ("CREATE FOREIGN DATA WRAPPER", _FOREIGN),
    ast.CreateForeignServerStmt: ("CREATE SERVER", _FOREIGN),
    ast.AlterForeignServerStmt: ("ALTER SERVER", _FOREIGN),
    ast.CreateUserMappingStmt: ("CREATE USER MAPPING", _FOREIGN),
    ast.AlterUserMappingStmt: ("ALTER USER MAPPING", _FOREIGN),
    ast.CreateForeignTableStmt: ("CREATE FOREIGN TABLE", _FOREIGN),
    ast.ImportForeignSchemaStmt: ("IMPORT FOREIGN SCHEMA", _FOREIGN),
    ast.DropRoleStmt: (
        "DROP ROLE",
        "roles belong to the whole server and another template may need this one; remove it",
    ),
    ast.AlterRoleSetStmt: (
        "ALTER ROLE ... SET",
        "a role's settings hold for the whole server; remove it, and set them in the agent's session",
    ),
    ast.ReassignOwnedStmt: ("REASSIGN OWNED", _CLUSTER),
    ast.DropOwnedStmt: ("DROP OWNED", _CLUSTER),
}

_SHARED_OBJECTS: dict[Any, str] = {
    enums.ObjectType.OBJECT_DATABASE: "a database",
    enums.ObjectType.OBJECT_TABLESPACE: "a tablespace",
    enums.ObjectType.OBJECT_ROLE: "a role",
    enums.ObjectType.OBJECT_PARAMETER_ACL: "a server parameter",
    enums.ObjectType.OBJECT_FDW: "a foreign data wrapper",
    enums.ObjectType.OBJECT_FOREIGN_SERVER: "a foreign server",
    enums.ObjectType.OBJECT_SUBSCRIPTION: "a subscription",
}

# Where pglast's nodes say what sort of object they are about.
_ABOUT = {"objtype": "is about", "objectType": "alters", "removeType": "drops", "renameType": "renames"}

_ROLE_RIGHTS = frozenset({"superuser", "createrole", "createdb", "isreplication", "bypassrls"})
_ROLE_MEMBERS = frozenset({"addroleto", "rolemembers", "adminmembers"})

_REACHING_EXTENSION = re.compile(
    r"\A(?:dblink|adminpack|pg_cron|pg_net|http|pgsql_http|plproxy|pglogical|aws_s3|aws_lambda|\w+_fdw)\Z"
)
_UNTRUSTED_LANGUAGE = re.compile(
    r"\A(?:pl(?:python|python2|python3|perl|tcl)u?|plsh|plr|pljavau?|plv8u|internal)\Z"
)
_TRUSTED_LANGUAGES = frozenset({"plperl", "pltcl"})
_LIBRARY = re.compile(r"\A\$libdir/(?!dblink|\w+_fdw|adminpack)[\w.-]+\Z")

# Cheap test first: the tree is walked only where one of these names stands before a parenthesis.
_REACHING_CALL = re.compile(
    r"\b(?:dblink\w*|lo_import|lo_export|pg_read_file|pg_read_binary_file|pg_ls_\w+|pg_terminate_backend"
    r"|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|pg_promote|pg_switch_wal"
    r"|pg_create_(?:logical|physical)_replication_slot)\s*\(",
    re.IGNORECASE,
)

# An allow-list: a new psql may bring a new way out, and must not bring it into seeds.
_COMMANDS = frozenset(
    {
        "restrict",
        "unrestrict",
        "set",
        "unset",
        "echo",
        "qecho",
        "warn",
        "pset",
        "timing",
        "encoding",
        "if",
        "elif",
    }
    | {"else", "endif", "gset", "gdesc", "x", "a", "t", "d", "dt", "l", "conninfo"}
)
_COMMAND_REASONS = {
    "c": _DATABASE,
    "connect": _DATABASE,
    "!": "it runs a program; remove it",
    "o": "it writes a file or runs a program; remove it",
    "out": "it writes a file or runs a program; remove it",
    "w": "it writes a file; remove it",
    "write": "it writes a file; remove it",
    "i": "what it includes would not be checked; list that file under seed.files",
    "ir": "what it includes would not be checked; list that file under seed.files",
    "include": "what it includes would not be checked; list that file under seed.files",
    "include_relative": "what it includes would not be checked; list that file under seed.files",
    "gexec": "it runs SQL that nobody can check before; write the statements out",
    "prompt": "nobody is there to answer; use \\set",
    "password": "nobody is there to answer; remove it",
    "lo_import": "it reads a file beside psql; remove it",
    "lo_export": "it writes a file beside psql; remove it",
}


def refused_command(name: str, line: str) -> str | None:
    """Why a backslash command is refused, or None."""
    rest = line[1 + len(name) :].strip()
    if re.search(r"\\", re.sub(r"'[^']*'", "", rest)):
        return f"\\{name}: more than one backslash command on a line; give each its own line"
    if name == "copy":
        if re.search(r"\bfrom\s+p?stdin\b", rest, re.IGNORECASE):
            return None
        return "\\copy: it reads or writes a file or a program; put the rows into the script"
    if name in ("g", "gx"):
        return (
            f"\\{name} {rest}: it writes a file or runs a program; end the statement with ;" if rest else None
        )
    if name in _COMMANDS:
        return None
    reason = _COMMAND_REASONS.get(name, "it is not a command that a seed needs; remove it")
    return f"\\{name}: {reason}"


def sets_role_aside(statement: Any) -> bool:
    """Whether a statement makes or alters a role, which the platform does itself (without login or password).

    Roles outlive databases, so the same CREATE ROLE would fail when the seed is loaded for the second time.
    """
    return isinstance(statement, ast.CreateRoleStmt | ast.AlterRoleStmt)


def refused_statement(statement: Any, text: str) -> str | None:
    """Why a parsed statement is refused, or None.

    Args:
        statement: pglast's node.
        text: its SQL, for the cheap test on function calls.
    """
    listed = _STATEMENTS.get(type(statement))
    if listed:
        return f"{listed[0]}: {listed[1]}"
    special = _SPECIAL.get(type(statement))
    reason = special(statement) if special else None
    for attribute, verb in _ABOUT.items():
        shared = _SHARED_OBJECTS.get(getattr(statement, attribute, None))
        if reason is None and shared:
            reason = f"this {verb} {shared}: {_CLUSTER}"
    if reason is None and _REACHING_CALL.search(text):
        calls = _Calls()
        calls(statement)
        if calls.found:
            reason = f"{calls.found}(): it reaches past the seed's database; remove the call"
    return reason


class _Calls(Visitor):
    """Finds a call of a function that reaches out."""

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def visit_FuncCall(self, _ancestors: Any, node: Any) -> None:  # noqa: N802  # pglast dispatches on this name
        name = node.funcname[-1].sval
        if _REACHING_CALL.match(name + "("):
            self.found = name


def _copy(statement: Any) -> str | None:
    if statement.is_program:
        return "COPY ... PROGRAM: it runs a program on the server; put the rows into the script"
    return f"COPY with a file: {_SERVER_FILE}" if statement.filename else None


def _extension(statement: Any) -> str | None:
    name = statement.extname
    if _REACHING_EXTENSION.match(name):
        return f"extension {name}: {_FOREIGN}"
    return _language(name)


def _language(name: str) -> str | None:
    if name in _TRUSTED_LANGUAGES or not _UNTRUSTED_LANGUAGE.match(name):
        return None
    return f"language {name}: it is not trusted, its code can do on the server what the server can; remove it"


def _option(options: Any, name: str) -> Any:
    return next((option.arg for option in options or () if option.defname == name), None)


def _function(statement: Any) -> str | None:
    language = _option(statement.options, "language")
    name = language.sval.lower() if language is not None else "sql"
    if name != "c":
        return _language(name)
    library = _option(statement.options, "as")
    if library and _LIBRARY.match(library[0].sval):
        return None
    return "language c: it loads a library that is not one of the server's own ($libdir/...); remove it"


def _do(statement: Any) -> str | None:
    language = _option(statement.args, "language")
    return _language(language.sval.lower()) if language is not None else None


def _event_trigger(statement: Any) -> str | None:
    if statement.eventname != "login":
        return None
    return f"login event trigger {statement.trigname}: it runs at each login to each fork; remove it"


def _role(statement: Any) -> str | None:
    for option in statement.options or ():
        name = option.defname
        if name in _ROLE_RIGHTS and getattr(option.arg, "boolval", True):
            return f"{name.removeprefix('is').upper()}: {_ROLE_RIGHT}"
        if name in _ROLE_MEMBERS:
            return "a role with members: write the membership as GRANT role TO role, which is kept"
    return None


def _membership(statement: Any) -> str | None:
    for privilege in statement.granted_roles:
        if (privilege.priv_name or "").startswith("pg_"):
            return f"GRANT {privilege.priv_name}: {_ROLE_RIGHT}"
    return None


def _transaction(statement: Any) -> str | None:
    if statement.kind != enums.TransactionStmtKind.TRANS_STMT_PREPARE:
        return None
    return "PREPARE TRANSACTION: it outlives the session and blocks the template; use COMMIT"


def _set(statement: Any) -> str | None:
    if statement.name != "standard_conforming_strings" or not statement.args:
        return None
    value = statement.args[0].val
    if str(getattr(value, "sval", getattr(value, "ival", ""))).lower() not in ("off", "false", "0", "no"):
        return None
    return (
        "standard_conforming_strings = off: make the dump again with it on, or write such strings as E'...'"
    )


_SPECIAL: dict[type, Callable[[Any], str | None]] = {
    ast.CopyStmt: _copy,
    ast.CreateExtensionStmt: _extension,
    ast.AlterExtensionStmt: _extension,
    ast.CreatePLangStmt: lambda statement: _language(statement.plname.lower()),
    ast.CreateFunctionStmt: _function,
    ast.DoStmt: _do,
    ast.CreateEventTrigStmt: _event_trigger,
    ast.CreateRoleStmt: _role,
    ast.AlterRoleStmt: _role,
    ast.GrantRoleStmt: _membership,
    ast.TransactionStmt: _transaction,
    ast.VariableSetStmt: _set,
}
