"""Rights of roles, which belong to the whole server: what a seed may give, and what it gave all the same.

CREATE ROLE and memberships in a seed are the platform's to carry out. Code that a seed runs (a DO block that
puts its SQL together) can still make a superuser; that is found afterwards and taken back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from redteam_forker.errors import SeedError
from redteam_forker.names import quote_ident
from redteam_forker.role import execute_shared

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import asyncpg

    from redteam_forker.seeds.rewrites import Membership

__all__ = ["Audit", "Rights", "audit", "give_memberships", "rights_of"]

_ATTRIBUTES = {
    "rolsuper": "SUPERUSER",
    "rolcreaterole": "CREATEROLE",
    "rolcreatedb": "CREATEDB",
    "rolreplication": "REPLICATION",
    "rolbypassrls": "BYPASSRLS",
}
# Predefined roles that confine nobody to a database:
# https://www.postgresql.org/docs/current/predefined-roles.html
_HARMLESS = frozenset({"pg_database_owner"})

_ROLES = f"SELECT rolname::text AS name, rolcanlogin, {', '.join(_ATTRIBUTES)} FROM pg_catalog.pg_roles"
_MEMBERS = """
SELECT r.rolname::text AS role, m.rolname::text AS member
FROM pg_catalog.pg_auth_members a
JOIN pg_catalog.pg_roles r ON r.oid = a.roleid JOIN pg_catalog.pg_roles m ON m.oid = a.member
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """Who may what on a server.

    Attributes:
        attributes: of each role, those that let it step out of a database.
        logins: roles that may log in.
        members: pairs of role and member.
    """

    attributes: dict[str, frozenset[str]] = field(repr=False)
    logins: frozenset[str] = field(repr=False)
    members: frozenset[tuple[str, str]] = field(repr=False)

    def reach(self, role: str) -> str | None:
        """Why a member of `role` could step out of a database; None if it could not."""
        seen, todo = {role}, [role]
        while todo:
            name = todo.pop()
            if self.attributes.get(name):
                return f"{name} is {', '.join(sorted(self.attributes[name]))}"
            if name.startswith("pg_") and name not in _HARMLESS:
                return f"{name} reaches the whole server"
            above = {granted for granted, member in self.members if member == name} - seen
            seen |= above
            todo += above
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What a seed's own code did to roles.

    Attributes:
        roles: that it made; they may not log in.
        problems: rights that it gave and that were taken back, in words.
    """

    roles: tuple[str, ...]
    problems: tuple[str, ...]

    def check(self) -> None:
        """Refuse the seed if it gave rights.

        Raises:
            SeedError: all of them.
        """
        if self.problems:
            raise SeedError("\n".join(self.problems))


async def rights_of(session: asyncpg.Connection) -> Rights:
    """Read them."""
    rows = await session.fetch(_ROLES)
    pairs = await session.fetch(_MEMBERS)
    return Rights(
        attributes={
            row["name"]: frozenset(word for column, word in _ATTRIBUTES.items() if row[column])
            for row in rows
        },
        logins=frozenset(row["name"] for row in rows if row["rolcanlogin"]),
        members=frozenset((row["role"], row["member"]) for row in pairs),
    )


async def give_memberships(
    session: asyncpg.Connection, wanted: Iterable[Membership], rights: Rights, version_num: int
) -> tuple[str, ...]:
    """Give those memberships that stay among the seed's roles; returns `file:line: ...` of those not given.

    An account of the server, which may log in, is nobody's to change: it neither gets a role nor is one to
    get.
    """
    withheld = []
    for each in dict.fromkeys(wanted):
        if (each.role, each.member) in rights.members:
            continue
        reason = rights.reach(each.role)
        for name in (each.role, each.member):
            if reason is None and name in rights.logins:
                reason = f"{name} is an account of this server"
        if reason is not None:
            withheld.append(f"{each.place}: GRANT {each.role} TO {each.member} (not given: {reason})")
            continue
        option = " WITH INHERIT FALSE" if not each.inherit and version_num >= 160000 else ""
        await execute_shared(
            session, [f"GRANT {quote_ident(each.role)} TO {quote_ident(each.member)}{option}"]
        )
    return tuple(withheld)


async def audit(
    session: asyncpg.Connection, before: Rights, *, texts: Collection[str], all_ours: bool
) -> Audit:
    """Compare rights with those before a seed ran, and take back what it gave.

    Args:
        session: on any database of the server.
        before: as they were.
        texts: the seed's scripts. On a server that others administer too, a change is the seed's only if the
            role is named in them; other changes are told, and left.
        all_ours: whether nobody else administers the server.
    """
    after = await rights_of(session)
    named = _naming(texts)
    roles, problems = [], []
    for name in sorted(after.attributes):
        ours = all_ours or named(name)
        gained = after.attributes[name] - before.attributes.get(name, frozenset())
        if gained:
            undone = (
                await _take(session, name, gained) if ours else "it is not named in the seed, so it was left"
            )
            problems.append(
                f"role {name!r} became {', '.join(sorted(gained))} while the seed was loaded; {undone}"
            )
        new = name not in before.attributes
        if ours and (named(name) or gained) and (new or name in after.logins - before.logins):
            await execute_shared(session, [f"ALTER ROLE {quote_ident(name)} NOLOGIN PASSWORD NULL"])
            roles += [name] if new else []
    for role, member in sorted(after.members - before.members):
        reason = before.reach(role)
        if reason and (all_ours or named(role) or named(member)):
            await execute_shared(session, [f"REVOKE {quote_ident(role)} FROM {quote_ident(member)}"])
            problems.append(
                f"the seed granted {role} to {member}, but {reason}; it was taken back: remove it"
            )
    return Audit(roles=tuple(roles), problems=tuple(problems))


async def _take(session: asyncpg.Connection, name: str, gained: frozenset[str]) -> str:
    words = " ".join(f"NO{attribute}" for attribute in sorted(gained))
    await execute_shared(session, [f"ALTER ROLE {quote_ident(name)} {words}"])
    return "that was taken back: remove it from the seed, which needs roles only as owners and grantees"


def _naming(texts: Collection[str]) -> Callable[[str], bool]:
    def named(name: str) -> bool:
        pattern = re.compile(rf"(?<![\w$]){re.escape(name)}(?![\w$])", re.IGNORECASE)
        return any(pattern.search(text) for text in texts)

    return named
