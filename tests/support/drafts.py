"""Seeds that suites are drafted for: one full of traps, and the public ones that load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["HARD", "TRIED", "Tried", "write_seed"]

HARD = """\
-- Names that need quotes, a key of two columns, partitions, a view, triggers, row-level security, no key.
CREATE SCHEMA "Care Desk";
CREATE TABLE "Care Desk"."Member" (
  "Branch" text NOT NULL, "No" integer NOT NULL, "First Name" text NOT NULL, "Last Name" text NOT NULL,
  "e-mail" varchar(60), password_hash text, "order" text, updated_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY ("Branch", "No"));
CREATE TABLE "Care Desk"."Plan" (
  id uuid PRIMARY KEY DEFAULT gen_random_uuid(), "memberBranch" text NOT NULL, "memberNo" int NOT NULL,
  title text, FOREIGN KEY ("memberBranch", "memberNo") REFERENCES "Care Desk"."Member" ("Branch", "No"));
CREATE TABLE public."select" (
  id bigint GENERATED ALWAYS AS IDENTITY, plan uuid NOT NULL REFERENCES "Care Desk"."Plan", notes text,
  made_on date NOT NULL, PRIMARY KEY (id, made_on)) PARTITION BY RANGE (made_on);
CREATE TABLE public.select_old PARTITION OF public."select" FOR VALUES FROM ('2026-01-01') TO ('2027-01-01');
CREATE TABLE public.visit (
  id int PRIMARY KEY, plan uuid NOT NULL REFERENCES "Care Desk"."Plan", notes text,
  status text NOT NULL CHECK (status IN ('booked', 'kept', 'cancelled')), starts_at timestamp NOT NULL,
  updated_at timestamptz NOT NULL DEFAULT now(), version int NOT NULL DEFAULT 1);
CREATE TABLE public.visit_log (visit int, was text, at timestamptz DEFAULT now());
CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  NEW.updated_at := clock_timestamp(); NEW.version := OLD.version + 1;
  INSERT INTO public.visit_log VALUES (OLD.id, OLD.status); RETURN NEW; END $$;
CREATE TRIGGER touch BEFORE UPDATE ON public.visit FOR EACH ROW EXECUTE FUNCTION touch();
CREATE VIEW public.members AS SELECT * FROM "Care Desk"."Member";
INSERT INTO "Care Desk"."Member"
  SELECT b, n, 'Ann' || n, 'O''Neil ' || b, 'ann' || n || '@' || lower(b) || '.example', md5(n::text), 'x'
  FROM unnest(ARRAY['North', 'South']) b, generate_series(1, 4) n;
INSERT INTO "Care Desk"."Plan" ("memberBranch", "memberNo", title)
  SELECT "Branch", "No", 'Plan ' || "No" FROM "Care Desk"."Member";
INSERT INTO public.visit
  SELECT row_number() OVER (ORDER BY p."memberBranch", p."memberNo", k), p.id, 'Knee ' || k, 'booked',
         timestamp '2026-11-26 09:00' + k * interval '1 day'
  FROM "Care Desk"."Plan" p, generate_series(1, 3) k;
ALTER TABLE public.visit ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON public.visit USING (plan::text = current_setting('app.plan', true));
"""

_AUTH = """
    CREATE SCHEMA auth;
    CREATE TABLE auth.users (id uuid PRIMARY KEY, raw_user_meta_data jsonb);
    CREATE FUNCTION auth.uid() RETURNS uuid LANGUAGE sql STABLE
      AS $$SELECT nullif(current_setting('request.jwt.claim.sub', true), '')::uuid$$;
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A public seed that loads.

    Attributes:
        label: in docs/suites.md.
        folder: below the inputs.
        files: as `--seed` names them, one after the other.
        first: SQL before them.
        change: text to replace in each file, and by what.
        always: whether the suite's tests try it without being asked for all.
    """

    label: str
    folder: str
    files: tuple[str, ...] = (".",)
    first: str = ""
    change: tuple[str, str] = ("", "")
    always: bool = False


def _derived(name: str) -> Tried:
    return Tried(label=name, folder="derived", files=(name,))


_OMOP = tuple(
    f"OMOPCDM_postgresql_5.4_{part}.sql" for part in ("ddl", "primary_keys", "constraints", "indices")
)

TRIED = (
    Tried(label="petclinic", folder="petclinic", files=("schema.sql", "data.sql")),
    Tried(label="openelis_clinic", folder="openelis_clinic"),
    Tried(
        label="omop_cdm, placeholder filled in",
        folder="omop_cdm",
        files=_OMOP,
        first="CREATE SCHEMA cdm;",
        change=("@cdmDatabaseSchema", "cdm"),
    ),
    Tried(label="chinook_neon", folder="chinook_neon"),
    Tried(label="chinook_lerocha", folder="chinook_lerocha", files=("Chinook_PostgreSql.sql",)),
    Tried(
        label="chinook_lerocha, identity keys",
        folder="chinook_lerocha",
        files=("Chinook_PostgreSql_AutoIncrementPKs.sql",),
    ),
    Tried(label="pagila_neon", folder="pagila_neon"),
    Tried(label="sanbase_structure", folder="sanbase_structure"),
    Tried(label="simplebank_migrations", folder="simplebank_migrations", always=True),
    Tried(label="supabase_saas, after schema auth", folder="supabase_saas", first=_AUTH),
    Tried(
        label="postgraphile_kitchen, after citext",
        folder="postgraphile_kitchen",
        files=tuple(f"kitchen-sink-{part}.sql" for part in ("schema", "data", "permissions")),
        first="CREATE EXTENSION citext;",
    ),
    Tried(label="procrastinate", folder="procrastinate"),
    Tried(
        label="procrastinate, migrations",
        folder="procrastinate",
        files=("procrastinate/sql/migrations",),
    ),
    Tried(
        label="evalsupport, reserved word quoted",
        folder="evalsupport",
        change=("  position integer,\n  similarity", '  "position" integer,\n  similarity'),
    ),
    _derived("petclinic.fc.dump"),
    _derived("petclinic.ft.tar"),
    _derived("petclinic.fd"),
    _derived("petclinic.plain.sql.gz"),
    _derived("petclinic.plain_restrict.sql"),
    _derived("petclinic.create_clean.sql"),
    _derived("petclinic.inserts.sql"),
    Tried(
        label="petclinic.dataonly.sql, after its schema",
        folder="derived",
        files=("../petclinic/schema.sql", "petclinic.dataonly.sql"),
    ),
    _derived("petclinic.crlf.sql"),
    _derived("petclinic.utf8bom.sql"),
    _derived("petclinic.utf16.sql"),
    _derived("largeobject_lo_manage.sql"),
    Tried(
        label="petclinic.fc.dump, after pg_dumpall.roles.sql",
        folder="derived",
        files=("pg_dumpall.roles.sql", "petclinic.fc.dump"),
    ),
)


def write_seed(tried: Tried, inputs: Path, folder: Path) -> list[Path]:
    """The paths to name; what must be changed or put before is written into `folder`."""
    base = inputs / tried.folder
    if tried.change[0]:
        for path in base.rglob("*.sql"):
            target = folder / path.relative_to(base)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(path.read_text().replace(*tried.change))
        base = folder
    named = [base / file for file in tried.files]
    if tried.first:
        first = folder / ".first" / "first.sql"
        first.parent.mkdir(parents=True, exist_ok=True)
        first.write_text(tried.first)
        named.insert(0, first)
    return named
