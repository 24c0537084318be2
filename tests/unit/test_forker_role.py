"""Verifiers and settings, as Postgres wants them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_forker.role import Setting, login_statements, new_password, scram_verifier, setting_statement


def test_verifier_is_that_of_the_standards_example() -> None:
    """RFC 7677, section 3: user `user`, password `pencil`. The server key signs the example's message."""
    verifier = scram_verifier("pencil", salt=base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), iterations=4096)
    assert verifier == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
        "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )


def test_passwords_are_long_and_need_no_quoting() -> None:
    passwords = {new_password() for _ in range(100)}
    assert len(passwords) == 100
    assert all(
        len(password) >= 32 and password.replace("-", "").replace("_", "").isalnum() for password in passwords
    )


def test_no_statement_holds_the_password() -> None:
    password = new_password()
    statements = login_statements("r", verifier=scram_verifier(password), lifetime_s=60)
    assert not any(password in statement for statement in statements)


@pytest.mark.parametrize(
    ("setting", "statement"),
    [
        (
            Setting(role=None, name="work_mem", value="5MB"),
            'ALTER DATABASE "db" SET "work_mem" TO \'5MB\'',
        ),
        (
            Setting(role="app", name="TimeZone", value="Asia/Tokyo"),
            'ALTER ROLE "app" IN DATABASE "db" SET "TimeZone" TO \'Asia/Tokyo\'',
        ),
        (
            Setting(role="", name="my.flag", value="it's"),
            'ALTER ROLE "db" IN DATABASE "db" SET "my"."flag" TO \'it\'\'s\'',
        ),
        (
            Setting(role=None, name="search_path", value='"$user", public, "a, ""b"""'),
            "ALTER DATABASE \"db\" SET \"search_path\" TO '$user', 'public', 'a, \"b\"'",
        ),
        (Setting(role=None, name="search_path", value='""'), 'ALTER DATABASE "db" SET "search_path" TO \'\''),
        (Setting(role=None, name="search_path", value=""), 'ALTER DATABASE "db" SET "search_path" TO \'\''),
    ],
)
def test_setting_is_given_again(setting: Setting, statement: str) -> None:
    assert setting_statement(setting, "db") == statement


names = st.text(st.characters(exclude_characters="\0\\'", exclude_categories=["Cs"]), min_size=1, max_size=12)


@given(st.lists(names, min_size=1, max_size=4))
def test_list_of_names_is_split_as_it_was_joined(wanted: list[str]) -> None:
    joined = ", ".join('"' + name.replace('"', '""') + '"' for name in wanted)
    statement = setting_statement(Setting(role=None, name="search_path", value=joined), "db")
    assert statement == 'ALTER DATABASE "db" SET "search_path" TO ' + ", ".join(
        f"'{name}'" for name in wanted
    )
