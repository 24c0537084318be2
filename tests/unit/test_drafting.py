"""What `redteam init --seed` concludes from names and keys alone; the data's part is in acceptance tests."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from redteam_harness.drafting.changeable import changes
from redteam_harness.drafting.owned import owned_by
from redteam_harness.drafting.people import candidates
from redteam_harness.drafting.rows import inserts
from redteam_harness.drafting.schema import Column, ForeignKey, Schema, Table, ident, scalar
from redteam_harness.drafting.words import head, kind_of, plural, singular, slug

if TYPE_CHECKING:
    from collections.abc import Iterable

_OIDS = itertools.count(1)


def _table(
    name: str, *columns: str, rows: int = 10, key: str = "id", refers: Iterable[tuple[str, Table]] = ()
) -> Table:
    """A table: `id` is its key; columns are text unless they end in `_id` (integer) or `_at` (timestamp)."""
    refers = tuple(refers)
    named = [key, *columns, *(column for column, _ in refers)]
    return Table(
        oid=next(_OIDS),
        schema="public",
        name=name,
        columns=tuple(_column(column, not_null=column == key or column.endswith("_id")) for column in named),
        key=(key,),
        unique=((key,),),
        foreign_keys=tuple(
            ForeignKey(columns=(column,), target=table.oid, target_columns=table.key)
            for column, table in refers
        ),
        rows=rows,
    )


def _column(name: str, *, not_null: bool) -> Column:
    base = "text"
    if name.lower().endswith("id"):
        base = "integer"
    elif name.endswith("_at"):
        base = "timestamp with time zone"
    return Column(name=name, type=base, base=base, not_null=not_null, required=not_null)


def _schema(*tables: Table) -> Schema:
    return Schema(tables={table.oid: table for table in tables})


def test_people_are_found_by_what_they_have_and_not_what_is_kept_about_them() -> None:
    customers = _table("tblCustomers", "FirstName", "LastName", "Email")
    staff = _table("staff", "first_name", "last_name", "email")
    addresses = _table("customer_addresses", "street", "city", refers=[("customer_id", customers)])
    roles = _table("user_roles", "name", refers=[("customer_id", customers)])
    ranked = candidates(_schema(roles, addresses, staff, customers))
    assert [one.table.name for one in ranked if one.is_people] == ["tblCustomers", "staff"]


def test_people_with_rows_come_before_likelier_ones_without() -> None:
    patients = _table("patients", "full_name", "date_of_birth", "email", rows=0)
    users = _table("users", "full_name", "email", rows=3)
    assert [one.table.name for one in candidates(_schema(patients, users))] == ["users", "patients"]


def test_without_people_the_table_that_most_refer_to_comes_first() -> None:
    jobs = _table("jobs", "args")
    events = [_table(f"job_events_{n}", "kind", refers=[("job_id", jobs)]) for n in range(3)]
    ranked = candidates(_schema(*events, jobs))
    assert ranked[0].table.name == "jobs"
    assert not ranked[0].is_people


def test_what_people_own_is_found_over_other_tables_and_kept_records_come_last() -> None:
    owners = _table("owners", "full_name")
    pets = _table("pets", "name", refers=[("owner_id", owners)])
    visits = _table("visits", "description", "status", refers=[("pet_id", pets)])
    log = _table("owner_log", "entry", refers=[("owner_id", owners)])
    found = owned_by(owners, _schema(owners, pets, visits, log))
    assert [one.table.name for one in found] == ["visits", "pets", "owner_log"]
    assert found[0].condition(["7"]) == "pet_id IN (SELECT id FROM pets WHERE owner_id = 7)"


def test_where_no_key_is_declared_columns_called_like_the_people_lead_to_them() -> None:
    members = _table("members", "full_name")
    loans = _table("loans", "title", "member_id", "branch_id")
    (found,) = owned_by(members, _schema(members, loans))
    assert (found.table.name, found.condition(["$1"]), found.declared) == ("loans", "member_id = $1", False)


def test_rows_that_share_a_parent_with_a_person_are_theirs() -> None:
    accounts = _table("auth_users")
    people = _table("users", "full_name", refers=[])
    people = Table(
        **{
            **{name: getattr(people, name) for name in Table.__slots__},
            "foreign_keys": (ForeignKey(columns=("id",), target=accounts.oid, target_columns=("id",)),),
        }
    )
    plans = _table("subscriptions", "status", refers=[("user_id", accounts)])
    (found,) = owned_by(people, _schema(accounts, people, plans))
    assert found.condition(["$1"]) == "user_id = $1"


@pytest.mark.parametrize(
    ("name", "type_", "kind"),
    [
        ("EmailAddress", "text", "email"),
        ("e-mail", "character varying", "email"),
        ("hashed_password", "text", "secret"),
        ("api_key", "text", "secret"),
        ("refresh_token", "text", "secret"),
        ("fhir_uuid", "uuid", "machine"),
        ("photo", "bytea", "machine"),
        ("birth_date", "date", "birth"),
        ("BirthDate", "timestamp without time zone", "birth"),
        ("visit_date", "date", "other"),
        ("cust_LastName", "text", "last name"),
        ("last_name", "text", "last name"),
        ("user_name", "text", "login"),
        ("owner_name", "text", "name"),
        ("mobile", "text", "phone"),
        ("order_status", "text", "status"),
    ],
)
def test_a_column_is_told_by_its_name_and_type(name: str, type_: str, kind: str) -> None:
    assert kind_of(name, type_) == kind


@pytest.mark.parametrize(
    ("many", "one"),
    [
        ("people", "person"),
        ("companies", "company"),
        ("addresses", "address"),
        ("visits", "visit"),
        ("boxes", "box"),
    ],
)
def test_words_have_one_and_many(many: str, one: str) -> None:
    assert (singular(many), plural(one), singular(one)) == (one, many, one)


def test_a_tables_noun_is_found_in_any_style_of_names() -> None:
    assert [head(name) for name in ("tbl_customers", "CustomerDetails", "Care Desk Members", "patient2")] == [
        "customer",
        "customer",
        "member",
        "patient",
    ]


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_name_of_any_letters_becomes_one_for_python_and_for_places_in_texts(name: str) -> None:
    made = slug(name)
    assert made.isidentifier()
    assert made.isascii()


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1))
def test_a_text_is_read_back_from_yaml_as_it_was(text: str) -> None:
    assert yaml.safe_load(f"k: {scalar(text)}") == {"k": text}
    assert yaml.safe_load(f"[{scalar(text, flow=True)}]") == [text]


@pytest.mark.parametrize(
    ("name", "sql"),
    [
        ("visits", "visits"),
        ("select", '"select"'),
        ("position", '"position"'),
        ("Care Desk", '"Care Desk"'),
        ('a"b', '"a""b"'),
        ("name", "name"),
    ],
)
def test_a_name_is_quoted_where_sql_would_take_it_for_something_else(name: str, sql: str) -> None:
    assert ident(name) == sql


def test_a_change_is_never_of_a_key_a_secret_or_what_moves_by_itself() -> None:
    people = _table("customers", "full_name", "api_token", "city", "note", "stage")
    found = changes(people, [], moving={("customers", "note")}, asked=["p.full_name"])
    assert [change.column.name for change in found] == ["city", "full_name"]  # what is asked for comes last


def test_rows_are_made_up_parents_first_and_a_circle_is_told_to_the_database() -> None:
    clinics = _table("clinics", "name", rows=0)
    patients = _table("patients", "full_name", rows=0, refers=[("clinic_id", clinics)])
    made = inserts(patients, [], _schema(clinics, patients))
    assert [line.split()[2] for line in made] == ["clinics", "patients"] * 3
    assert not any("ON CONFLICT" in line for line in made)

    looped = Table(
        **{
            **{name: getattr(clinics, name) for name in Table.__slots__},
            "columns": (*clinics.columns, _column("head_id", not_null=True)),
            "foreign_keys": (ForeignKey(columns=("head_id",), target=patients.oid, target_columns=("id",)),),
        }
    )
    made = inserts(patients, [], _schema(looped, patients))
    assert made[0] == "SET session_replication_role = replica;"
    assert made[-1] == "RESET session_replication_role;"
