"""What a seed may not do: the statements and backslash commands that reach past the template's own database.

Each reason ends with the way out, and with the flag that allows it where one does. The list is about
accidents (a dump made for another purpose), not about an attacker: whoever writes a seed may run code on the
server anyway.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pglast import ast, enums

from redteam_forker.seeds.bodies import calls_of
from redteam_forker.seeds.flags import way_by_flag

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["refused_command", "refused_statement"]

_DATABASE = "it reaches another database of the server; remove it: the platform makes the database itself"
_CLUSTER = "it changes the whole server, not the seed's database; remove it"
_FOREIGN = "it lets every fork reach another system; remove it, make a plain table of the data"
_SERVER_FILE = (
    "it reads or writes a file on the server; put the rows into the script with COPY ... FROM stdin or INSERT"
)
_SUBSCRIPTION = "it connects the template to a publisher; remove it (pg_dump --no-subscriptions)"
_ROLE_RIGHT = (
    "it makes a role that can step out of its database; remove the attribute: "
    "seeds need roles only as owners and grantees"
)
_CRON = "its jobs would run by themselves, in the template or beside the forks; remove it"
_NETWORK = "it calls other systems from inside the database; remove it"

# By a node's type: what to call it, why it is refused, and the flag that allows it.
_STATEMENTS: dict[type, tuple[str, str, str | None]] = {
    ast.CreatedbStmt: ("CREATE DATABASE", _DATABASE, None),
    ast.DropdbStmt: ("DROP DATABASE", _DATABASE, None),
    ast.AlterDatabaseStmt: ("ALTER DATABASE", _DATABASE, None),
    ast.AlterDatabaseSetStmt: ("ALTER DATABASE", _DATABASE, None),
    ast.AlterDatabaseRefreshCollStmt: ("ALTER DATABASE", _DATABASE, None),
    ast.AlterSystemStmt: ("ALTER SYSTEM", _CLUSTER, None),
    ast.CreateTableSpaceStmt: ("CREATE TABLESPACE", _CLUSTER, None),
    ast.DropTableSpaceStmt: ("DROP TABLESPACE", _CLUSTER, None),
    ast.AlterTableSpaceOptionsStmt: ("ALTER TABLESPACE", _CLUSTER, None),
    ast.LoadStmt: ("LOAD", "it loads a library into the server; remove it", None),
    ast.CreateSubscriptionStmt: ("CREATE SUBSCRIPTION", _SUBSCRIPTION, "subscription"),
    ast.AlterSubscriptionStmt: ("ALTER SUBSCRIPTION", _SUBSCRIPTION, "subscription"),
    ast.DropSubscriptionStmt: ("DROP SUBSCRIPTION", _SUBSCRIPTION, "subscription"),
    ast.CreateFdwStmt: ("CREATE FOREIGN DATA WRAPPER", _FOREIGN, "foreign-server"),
    ast.AlterFdwStmt: ("ALTER FOREIGN DATA WRAPPER", _FOREIGN, "foreign-server"),
    ast.CreateForeignServerStmt: ("CREATE SERVER", _FOREIGN, "foreign-server"),
    ast.AlterForeignServerStmt: ("ALTER SERVER", _FOREIGN, "foreign-server"),
    ast.CreateForeignTableStmt: ("CREATE FOREIGN TABLE", _FOREIGN, "foreign-server"),
    ast.ImportForeignSchemaStmt: ("IMPORT FOREIGN SCHEMA", _FOREIGN, "foreign-server"),
    ast.CreateUserMappingStmt: ("CREATE USER MAPPING", _FOREIGN, "user-mapping"),
    ast.AlterUserMappingStmt: ("ALTER USER MAPPING", _FOREIGN, "user-mapping"),
    ast.DropUserMappingStmt: ("DROP USER MAPPING", _FOREIGN, "user-mapping"),
    ast.DropRoleStmt: (
        "DROP ROLE",
        "roles belong to the whole server and another template may need this one; remove it",
        None,
    ),
    ast.AlterRoleSetStmt: (
        "ALTER ROLE ... SET",
        "a role's settings hold for the whole server; remove it, and set them in the agent's session",
        None,
    ),
    ast.ReassignOwnedStmt: ("REASSIGN OWNED", _CLUSTER, None),
    ast.DropOwnedStmt: ("DROP OWNED", _CLUSTER, None),
}

_SHARED_OBJECTS: dict[Any, tuple[str, str | None]] = {
    enums.ObjectType.OBJECT_DATABASE: ("a database", None),
    enums.ObjectType.OBJECT_TABLESPACE: ("a tablespace", None),
    enums.ObjectType.OBJECT_ROLE: ("a role", None),
    enums.ObjectType.OBJECT_PARAMETER_ACL: ("a server parameter", None),
    enums.ObjectType.OBJECT_FDW: ("a foreign data wrapper", "foreign-server"),
    enums.ObjectType.OBJECT_FOREIGN_SERVER: ("a foreign server", "foreign-server"),
    enums.ObjectType.OBJECT_SUBSCRIPTION: ("a subscription", "subscription"),
}

# Where pglast's nodes say what sort of object they are about.
_ABOUT = {"objtype": "is about", "objectType": "alters", "removeType": "drops", "renameType": "renames"}

_ROLE_RIGHTS = frozenset({"superuser", "createrole", "createdb", "isreplication", "bypassrls"})
_ROLE_MEMBERS = frozenset({"addroleto", "rolemembers", "adminmembers"})

_REACHING_EXTENSIONS = (
    (re.compile(r"\A\w+_fdw\Z"), "foreign-server", _FOREIGN),
    (re.compile(r"\A(?:dblink|plproxy|pglogical)\Z"), "dblink", _FOREIGN),
    (re.compile(r"\A(?:pg_cron|pg_timetable|pgagent)\Z"), "cron", _CRON),
    (
        re.compile(r"\A(?:pg_net|http|pgsql_http|aws_s3|aws_lambda|aws_commons)\Z"),
        "network-extension",
        _NETWORK,
    ),
    (re.compile(r"\A(?:adminpack)\Z"), "server-file", _SERVER_FILE),
)
_UNTRUSTED_LANGUAGE = re.compile(
    r"\A(?:pl(?:python|python2|python3|perl|tcl)u?|plsh|plr|pljavau?|plv8u|internal)\Z"
)
_TRUSTED_LANGUAGES = frozenset({"plperl", "pltcl"})
_LIBRARY = re.compile(r"\A\$libdir/(?!dblink|\w+_fdw|adminpack)[\w.-]+\Z")

# Cheap test first: the tree is walked only where one of these names stands before a parenthesis.
_REACHING_CALL = re.compile(
    r"\b(?:dblink\w*|lo_import|lo_export|pg_read_file|pg_read_binary_file|pg_ls_\w+|pg_terminate_backend"
    r"|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|pg_promote|pg_switch_wal|http\w*|aws_\w+"
    r"|pg_create_(?:logical|physical)_replication_slot|schedule\w*|unschedule|alter_job)\"?\s*\(",
    re.IGNORECASE,
)
_CALLS: tuple[tuple[re.Pattern[str], str | None, str], ...] = (
    (re.compile(r"(?:.*\.)?dblink\w*"), "dblink", _FOREIGN),
    (re.compile(r"cron\.(?:schedule\w*|unschedule|alter_job)"), "cron", _CRON),
    (re.compile(r"(?:net|supabase_functions|extensions)\.http\w*"), "network-extension", _NETWORK),
    (re.compile(r"http(?:_get|_post|_put|_patch|_delete|_head)?"), "network-extension", _NETWORK),
    (re.compile(r"aws_(?:s3|lambda)\.\w+"), "network-extension", _NETWORK),
    (
        re.compile(r"(?:.*\.)?(?:lo_import|lo_export|pg_read_file|pg_read_binary_file|pg_ls_\w+)"),
        "server-file",
        "it reaches past the seed's database; remove the call",
    ),
    (
        re.compile(
            r"(?:.*\.)?(?:pg_terminate_backend|pg_cancel_backend|pg_reload_conf|pg_rotate_logfile|pg_promote"
            r"|pg_switch_wal|pg_create_(?:logical|physical)_replication_slot)"
        ),
        None,
        "it reaches past the seed's database; remove the call",
    ),
)

# An allow-list: a new psql may bring a new way out, and must not bring it into seeds.
_COMMANDS = frozenset(
    {"restrict", "unrestrict", "set", "unset", "echo", "qecho", "warn", "pset", "timing", "encoding"}
    | {"if", "elif", "else", "endif", "gset", "gdesc", "x", "a", "t", "d", "dt", "l", "conninfo"}
)
_WRITES = "it writes a file or runs a program; remove it"
_MISPLACED = "it can be put in place only where the seed's own files are read; write the file's text here"
_COMMAND_REASONS = {
    "c": _DATABASE,
    "connect": _DATABASE,
    "!": "it runs a program; remove it",
    "o": _WRITES,
    "out": _WRITES,
    "w": "it writes a file; remove it",
    "write": "it writes a file; remove it",
    "i": _MISPLACED,
    "ir": _MISPLACED,
    "include": _MISPLACED,
    "include_relative": _MISPLACED,
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
    if name != "copy" and "`" in rest:
        return f"\\{name}: what stands in backquotes is a program that it runs; write the value out"
    if name == "set" and (rest.startswith("SINGLE") or ";" in rest):
        return f"\\set {rest}: it changes where statements end; write them out"
    if name == "copy":
        if re.search(r"\bfrom\s+p?stdin\b", rest, re.IGNORECASE):
            return None
        return "\\copy: it reads or writes a file or a program; put the rows into the script"
    if name in ("g", "gx"):
        return f"\\{name} {rest}: {_WRITES.partition(';')[0]}; end the statement with ;" if rest else None
    if name in _COMMANDS:
        return None
    reason = _COMMAND_REASONS.get(name, "it is not a command that a seed needs; remove it")
    return f"\\{name}: {reason}"


def refused_statement(statement: Any, text: str, allow: frozenset[str] = frozenset()) -> str | None:
    """Why a parsed statement is refused, or None.

    Args:
        statement: pglast's node.
        text: its SQL, for the cheap test on function calls.
        allow: flags; what they name is not refused.
    """
    listed = _STATEMENTS.get(type(statement))
    found: tuple[str, str | None] | None = None
    if listed:
        found = f"{listed[0]}: {listed[1]}", listed[2]
    elif special := _SPECIAL.get(type(statement)):
        found = special(statement)
    for attribute, verb in _ABOUT.items():
        shared = _SHARED_OBJECTS.get(getattr(statement, attribute, None))
        if found is None and shared and not (shared[1] and isinstance(statement, ast.DropStmt)):
            found = f"this {verb} {shared[0]}: {_CLUSTER}", shared[1]
    if found is not None and found[1] not in allow:
        return found[0] + way_by_flag(found[1])
    if _REACHING_CALL.search(text):
        return _call(statement, allow)
    return None


def _call(statement: Any, allow: frozenset[str]) -> str | None:
    for name in calls_of(statement):
        for pattern, flag, reason in _CALLS:
            if flag not in allow and pattern.fullmatch(name.lower()):
                return f"{name.removeprefix('pg_catalog.')}(): {reason}{way_by_flag(flag)}"
    return None


_Found = tuple[str, str | None] | None


def _rows(statement: Any) -> _Found:
    relation = statement.relation
    if relation is not None and relation.schemaname == "cron":
        return f"rows of cron.{relation.relname}: {_CRON}", "cron"
    return None


def _copy(statement: Any) -> _Found:
    if statement.is_program:
        return (
            "COPY ... PROGRAM: it runs a program on the server; put the rows into the script",
            "copy-program",
        )
    if statement.filename:
        return f"COPY with a file: {_SERVER_FILE}", "server-file"
    return _rows(statement)


def _extension(statement: Any) -> _Found:
    name = statement.extname
    for pattern, flag, reason in _REACHING_EXTENSIONS:
        if pattern.match(name):
            return f"extension {name}: {reason}", flag
    return _language(name)


def _language(name: str) -> _Found:
    if name in _TRUSTED_LANGUAGES or not _UNTRUSTED_LANGUAGE.match(name):
        return None
    reason = (
        f"language {name}: it is not trusted, its code can do on the server what the server can; remove it"
    )
    return reason, "untrusted-language"


def _option(options: Any, name: str) -> Any:
    return next((option.arg for option in options or () if option.defname == name), None)


def _function(statement: Any) -> _Found:
    language = _option(statement.options, "language")
    name = language.sval.lower() if language is not None else "sql"
    if name != "c":
        return _language(name)
    library = _option(statement.options, "as")
    if library and _LIBRARY.match(library[0].sval):
        return None
    return (
        "language c: it loads a library that is not one of the server's own ($libdir/...); remove it",
        "c-function",
    )


def _do(statement: Any) -> _Found:
    language = _option(statement.args, "language")
    return _language(language.sval.lower()) if language is not None else None


def _event_trigger(statement: Any) -> _Found:
    if statement.eventname != "login":
        return None
    return (
        f"login event trigger {statement.trigname}: it runs at each login to each fork; remove it",
        "event-trigger",
    )


def _role(statement: Any) -> _Found:
    for option in statement.options or ():
        name = option.defname
        if name in _ROLE_RIGHTS and getattr(option.arg, "boolval", True):
            return f"{name.removeprefix('is').upper()}: {_ROLE_RIGHT}", None
        if name in _ROLE_MEMBERS:
            return "a role with members: write the membership as GRANT role TO role, which is kept", None
    return None


def _membership(statement: Any) -> _Found:
    for privilege in statement.granted_roles:
        if (privilege.priv_name or "").startswith("pg_"):
            return f"GRANT {privilege.priv_name}: {_ROLE_RIGHT}", None
    return None


def _transaction(statement: Any) -> _Found:
    if statement.kind != enums.TransactionStmtKind.TRANS_STMT_PREPARE:
        return None
    return "PREPARE TRANSACTION: it outlives the session and blocks the template; use COMMIT", None


def _set(statement: Any) -> _Found:
    if statement.name != "standard_conforming_strings" or not statement.args:
        return None
    value = statement.args[0].val
    if str(getattr(value, "sval", getattr(value, "ival", ""))).lower() not in ("off", "false", "0", "no"):
        return None
    return (
        "standard_conforming_strings = off: make the dump again with it on, or write such strings as E'...'",
        None,
    )


_SPECIAL: dict[type, Callable[[Any], _Found]] = {
    ast.CopyStmt: _copy,
    ast.InsertStmt: _rows,
    ast.UpdateStmt: _rows,
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
