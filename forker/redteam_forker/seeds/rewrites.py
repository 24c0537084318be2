"""Statements that a seed may hold and that are not run as they stand.

Roles and the database itself are the platform's to make; a dump's own name for its database means the
template's; whatever hangs on the machine that the dump was made on (tablespaces, encodings) stays behind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pglast import ast, enums

from redteam_forker.seeds.content import is_utf8_name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from redteam_forker.seeds.statements import Piece

__all__ = [
    "HERE",
    "Aside",
    "Membership",
    "connected_name",
    "is_a",
    "made_databases",
    "memberships_of",
    "optional_setting",
    "rewrite",
]

_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d][\w$]*)'
_CREATE_DATABASE = re.compile(rf"create\s+database\s+({_NAME})", re.IGNORECASE)
_ALTER_DATABASE = re.compile(rf"(alter\s+database\s+){_NAME}", re.IGNORECASE)
_ALTER_ROLE = re.compile(rf"(alter\s+(?:role|user)\s+{_NAME})(?:\s+in\s+database\s+{_NAME})?", re.IGNORECASE)
_CREATE_SCHEMA = re.compile(r"(create\s+schema)\b", re.IGNORECASE)
_CONNECT_URI = re.compile(r"""-reuse-previous=on\s+"dbname='((?:[^'\\]|\\.)+)'"\s*\Z""")
# The template's own database, which has no name yet when the seed is checked. No text holds a NUL.
HERE = "\0here\0"

_RIGHTS = ("superuser", "createrole", "createdb", "isreplication", "bypassrls")
_SUBSCRIPTIONS = ast.CreateSubscriptionStmt | ast.AlterSubscriptionStmt | ast.DropSubscriptionStmt
_DATABASE_OPTIONS = (
    ast.CreatedbStmt | ast.DropdbStmt | ast.AlterDatabaseStmt | ast.AlterDatabaseRefreshCollStmt
)
# Settings of a session that change nothing of what is loaded, so that a server which lacks one may go
# without.
_OPTIONAL = frozenset(
    {
        "default_table_access_method",
        "default_toast_compression",
        "idle_in_transaction_session_timeout",
        "idle_session_timeout",
        "lock_timeout",
        "restrict_nonsystem_relation_kind",
        "row_security",
        "statement_timeout",
        "transaction_timeout",
        "xmloption",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """`GRANT role TO member`.

    Attributes:
        role: what is granted.
        member: to whom.
        inherit: false for WITH INHERIT FALSE.
        place: `file:line`.
    """

    role: str
    member: str
    inherit: bool
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """What becomes of such a statement.

    Attributes:
        label: what it was, in short; empty if it is not worth a word.
        instead: what is run in its place; None for nothing.
        owner: whether it is about ownership.
    """

    label: str = ""
    instead: str | None = None
    owner: bool = False


def is_a(statement: Any, kinds: Any) -> bool:
    """What isinstance says, without narrowing: pglast's types hold None where its grammar never does."""
    return isinstance(statement, kinds)


def made_databases(pieces: Iterable[Piece]) -> set[str]:
    """The names of the databases that a script creates."""
    found = (_CREATE_DATABASE.match(piece.text) for piece in pieces if piece.meta is None)
    return {_folded(match.group(1)) for match in found if match}


def connected_name(piece: Piece) -> str | None:
    r"""The database that a `\connect` names, if it names nothing else."""
    assert piece.meta is not None
    rest = piece.text[1 + len(piece.meta) :].strip().rstrip(";").strip()
    if match := _CONNECT_URI.match(rest):
        return re.sub(r"\\(.)", r"\1", match.group(1))
    return _folded(rest) if re.fullmatch(_NAME, rest) else None


def optional_setting(statement: Any) -> str | None:
    """The name of the setting that a statement sets, if a server may lack it without harm."""
    if is_a(statement, ast.VariableSetStmt) and statement.name in _OPTIONAL:
        return str(statement.name)
    return None


def memberships_of(statement: Any, place: str) -> list[Membership]:
    """The memberships that a statement gives."""
    pairs: list[tuple[str | None, str | None]] = []
    inherit = True
    if is_a(statement, ast.GrantRoleStmt) and statement.is_grant:
        inherit = _boolean(statement.opt, "inherit", default=True)
        pairs = [
            (to.priv_name, by.rolename) for to in statement.granted_roles for by in statement.grantee_roles
        ]
    elif is_a(statement, ast.CreateRoleStmt | ast.AlterRoleStmt) and getattr(statement, "action", 1) != -1:
        own = statement.role if is_a(statement, ast.CreateRoleStmt) else statement.role.rolename
        for option in statement.options or ():
            if option.defname == "addroleto":
                pairs += [(role.rolename, own) for role in option.arg]
            elif option.defname in ("rolemembers", "adminmembers"):
                pairs += [(own, role.rolename) for role in option.arg]
    return [
        Membership(role=role, member=member, inherit=inherit, place=place)
        for role, member in pairs
        if role and member and not role.startswith("pg_")
    ]


def rewrite(
    statement: Any, text: str, *, own: str | None, strip_owners: bool, leave_subscriptions: bool, public: bool
) -> Aside | None:
    """What becomes of a statement that is not run as it stands; None if it is.

    Args:
        statement: pglast's node.
        text: its SQL.
        own: the seed's own name for its database, if it makes one.
        strip_owners: whether ownership is left out.
        leave_subscriptions: whether statements about subscriptions are.
        public: whether schema public is there.
    """
    if is_a(statement, _SUBSCRIPTIONS) or _about(statement) == enums.ObjectType.OBJECT_SUBSCRIPTION:
        return Aside(label=_first_words(text)) if leave_subscriptions else None
    return (
        _role(statement, text, own)
        or (_database(statement, text, own) if own is not None else None)
        or (_owner(statement, text) if strip_owners else None)
        or _setting(statement)
        or _already_there(statement, text, public=public)
    )


def _role(statement: Any, text: str, own: str | None) -> Aside | None:
    if is_a(statement, ast.CreateRoleStmt):
        return Aside(label=f"CREATE ROLE {statement.role}{_withheld(statement)}")
    if is_a(statement, ast.AlterRoleStmt):
        return Aside(label=f"ALTER ROLE {statement.role.rolename or 'CURRENT_USER'}{_withheld(statement)}")
    if is_a(statement, ast.DropRoleStmt):
        names = ", ".join(role.rolename or "CURRENT_USER" for role in statement.roles)
        return Aside(label=f"DROP ROLE {names}")
    if is_a(statement, ast.GrantRoleStmt):
        if not statement.is_grant:
            return Aside(label=_first_words(text))
        reserved = [role.priv_name for role in statement.granted_roles if role.priv_name.startswith("pg_")]
        return Aside(label=f"GRANT {', '.join(reserved)}" if reserved else "")
    if is_a(statement, ast.AlterRoleSetStmt):
        name = statement.setstmt.name
        if statement.database not in (None, own) or (name and "preload" in name):
            return None
        changed, found = _ALTER_ROLE.subn(rf"\1 IN DATABASE {HERE}", text, count=1)
        return Aside(instead=changed) if found and _ALTER_ROLE.match(text) else None
    return None


def _withheld(statement: Any) -> str:
    """What a role is asked to be and will not."""
    asked = [
        option.defname.removeprefix("is").upper()
        for option in statement.options or ()
        if option.defname in _RIGHTS and getattr(option.arg, "boolval", True)
    ]
    asked += [
        role.rolename
        for option in statement.options or ()
        if option.defname == "addroleto"
        for role in option.arg
        if (role.rolename or "").startswith("pg_")
    ]
    return f" (not given: {', '.join(asked)})" if asked else ""


def _database(statement: Any, text: str, own: str) -> Aside | None:
    if is_a(statement, _DATABASE_OPTIONS):
        return Aside(label=f"{_first_words(text, 2)} {own}") if statement.dbname == own else None
    if is_a(statement, ast.AlterDatabaseSetStmt):
        name = statement.setstmt.name
        if statement.dbname != own or (name and "preload" in name) or not _ALTER_DATABASE.match(text):
            return None
        return Aside(instead=_ALTER_DATABASE.sub(rf"\1{HERE}", text, count=1))
    if _about(statement) != enums.ObjectType.OBJECT_DATABASE or is_a(statement, ast.RenameStmt):
        return None
    objects = getattr(statement, "objects", None) or (getattr(statement, "object", None),)
    if [getattr(each, "sval", None) for each in objects] != [own]:
        return None
    return Aside(label=_first_words(text, 5))


def _owner(statement: Any, text: str) -> Aside | None:
    if is_a(statement, ast.AlterOwnerStmt) and statement.objectType not in (
        enums.ObjectType.OBJECT_DATABASE,
        enums.ObjectType.OBJECT_TABLESPACE,
        enums.ObjectType.OBJECT_FDW,
        enums.ObjectType.OBJECT_FOREIGN_SERVER,
    ):
        return Aside(label=_first_words(text, 8), owner=True)
    if is_a(statement, ast.AlterTableStmt) and all(
        command.subtype == enums.AlterTableType.AT_ChangeOwner for command in statement.cmds
    ):
        return Aside(label=_first_words(text, 8), owner=True)
    if is_a(statement, ast.VariableSetStmt) and statement.name == "session_authorization":
        return Aside(label=_first_words(text, 4), owner=True)
    return None


def _setting(statement: Any) -> Aside | None:
    if not is_a(statement, ast.VariableSetStmt) or not statement.args:
        return None
    value = str(getattr(statement.args[0].val, "sval", ""))
    if statement.name == "client_encoding" and not is_utf8_name(value):
        return Aside(label=f"SET client_encoding = {value} (converted to UTF-8)")
    if statement.name in ("default_tablespace", "temp_tablespaces") and value:
        return Aside(label=f"SET {statement.name} = {value}")
    return None


def _already_there(statement: Any, text: str, *, public: bool) -> Aside | None:
    """What every new database has, and pg_dump may write all the same."""
    if (
        is_a(statement, ast.CommentStmt)
        and statement.objtype == enums.ObjectType.OBJECT_EXTENSION
        and statement.object.sval == "plpgsql"
    ):
        return Aside()  # only the owner may, and that is not always us
    if is_a(statement, ast.CreateSchemaStmt) and statement.schemaname == "public" and public:
        plain = not statement.schemaElts and not statement.if_not_exists
        return Aside(instead=_CREATE_SCHEMA.sub(r"\1 IF NOT EXISTS", text, count=1)) if plain else None
    return None


def _about(statement: Any) -> Any:
    return next(
        (
            kind
            for attribute in ("objtype", "objectType", "removeType", "renameType")
            if (kind := getattr(statement, attribute, None)) is not None
        ),
        None,
    )


def _boolean(options: Any, name: str, *, default: bool) -> bool:
    found = next((option.arg for option in options or () if option.defname == name), None)
    return bool(getattr(found, "boolval", default))


def _folded(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()


def _first_words(text: str, count: int = 4) -> str:
    return " ".join(text.split()[:count])
