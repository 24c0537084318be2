"""The world that ships: its data, how it moves with the calendar, and its tools."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import pytest
import yaml
from support.clinic import FOLDER, Clinic, agent_modules, build_clinic, clinic_seed, set_clock, suite

from redteam_forker.seeds import lint
from redteam_forker.template import build_template
from redteam_rubrics import check_names, parse_rules
from redteam_sdk.tool import is_tool, schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from types import ModuleType

    from redteam_forker.servers import Server

# Every weekday, both sides of daylight saving, a leap day, years after the anchor and before it.
DAYS = [
    "2026-11-30",
    "2027-07-06",
    "2028-02-29",
    "2031-05-14",
    "2030-10-31",
    "2024-03-15",
    "2027-01-02",
    "2029-06-24",
]


@pytest.fixture(scope="module")
def modules() -> Iterator[Mapping[str, ModuleType]]:
    with agent_modules() as imported:
        yield imported


@pytest.fixture(scope="module")
async def clinic(server: Server, modules: Mapping[str, ModuleType]) -> AsyncIterator[Clinic]:
    async with build_clinic(server, datetime.now().astimezone().date(), modules) as built:
        yield built


def test_the_generator_writes_the_committed_data_byte_for_byte(tmp_path: Any) -> None:
    for name in ("generate.py", "world.py", "vocabulary.py"):
        (tmp_path / name).write_bytes((FOLDER / name).read_bytes())
    subprocess.run([sys.executable, "-S", str(tmp_path / "generate.py")], check=True, timeout=30)
    assert (tmp_path / "data.sql").read_bytes() == (FOLDER / "data.sql").read_bytes()
    assert (FOLDER / "data.sql").stat().st_size <= 2_500_000


def test_the_seed_asks_for_one_role_and_is_refused_nothing() -> None:
    assert lint(clinic_seed()).roles == ("clinic_app",)


async def test_it_is_as_large_as_it_says(clinic: Clinic) -> None:
    baseline = await clinic.server.connect(clinic.template.baseline)
    try:
        counted = await baseline.fetchrow(
            """
            SELECT (SELECT count(*) FROM clinics) AS clinics, (SELECT count(*) FROM providers) AS providers,
                   (SELECT count(*) FROM patients) AS patients,
                   (SELECT count(*) FROM coverages WHERE valid_to IS NOT NULL) > 500 AS policy_history,
                   (SELECT count(*) FROM appointments WHERE status = 'completed') > 3000 AS past,
                   (SELECT count(*) FROM appointments WHERE status = 'booked') > 1000 AS future,
                   (SELECT count(*) FROM encounter_notes WHERE sensitive) > 100 AS sensitive_notes,
                   (SELECT count(*) FROM claims WHERE status = 'open') > 500 AS open_claims
            """
        )
        dangling = await baseline.fetchval(
            "SELECT count(*) FROM claims c JOIN coverages v ON v.id = c.coverage_id"
            " JOIN appointments a ON a.id = c.appointment_id"
            " WHERE a.patient_id <> v.patient_id OR a.starts_at::date < v.valid_from"
            " OR a.starts_at::date >= coalesce(v.valid_to, 'infinity')"
        )
    finally:
        await baseline.close()
    assert dict(counted) == {
        "clinics": 5,
        "providers": 40,
        "patients": 2400,
        "policy_history": True,
        "past": True,
        "future": True,
        "sensitive_notes": True,
        "open_claims": True,
    }
    assert dangling == 0


async def test_each_case_has_a_cast(clinic: Clinic) -> None:
    sizes = {case["id"]: len(clinic.cast.rows_for(case["id"])) for case in suite()["cases"]}
    assert len(sizes) >= 5
    assert all(size >= 100 for size in sizes.values()), sizes


@pytest.mark.parametrize("today", DAYS)
async def test_next_week_and_thursday_have_free_times_whatever_day_it_is(
    server: Server, modules: Mapping[str, ModuleType], today: str
) -> None:
    async with (
        build_clinic(server, date.fromisoformat(today), modules) as clinic,
        clinic.fork() as (fork, admin),
    ):
        await set_clock(admin, f"{today}T11:00:00")
        tools = modules["tools"]
        async with clinic.on_fork(fork):
            told = await tools.today()
            day: date = told["date"]
            monday = day + timedelta(days=8 - day.isoweekday())
            thursday = day + timedelta(days=(4 - day.isoweekday() - 1) % 7 + 1)
            spans = {"next week": (monday, monday + timedelta(days=4)), "Thursday": (thursday, thursday)}
            free = {}
            for clinic_id in range(1, 6):
                for name, (first, last) in spans.items():
                    slots = await tools.find_slots(
                        "new_patient_office", first, last, "family medicine", clinic_id=clinic_id
                    )
                    free[clinic_id, name] = len(slots)
        newest = await admin.fetchval("SELECT max(starts_at) FROM appointments WHERE status = 'completed'")
    assert told == {"date": date.fromisoformat(today), "weekday": day.strftime("%A")}
    assert set(free.values()) == {3}
    assert timedelta(0) < datetime.fromisoformat(today) - newest < timedelta(days=14)


async def test_weekdays_and_clock_times_stay_when_the_world_moves(
    server: Server, modules: Mapping[str, ModuleType]
) -> None:
    """From winter into summer: a calendar in `timestamp` does not shift by an hour."""
    shapes = []
    for day in (date(2026, 11, 30), date(2027, 7, 6)):
        async with build_clinic(server, day, modules) as clinic:
            baseline = await server.connect(clinic.template.baseline)
            try:
                rows = await baseline.fetch(
                    "SELECT id, extract(isodow FROM starts_at)::int AS day, starts_at::time AS time,"
                    " ends_at - starts_at AS length FROM appointments ORDER BY id"
                )
                born = await baseline.fetchval(
                    "SELECT md5(string_agg(date_of_birth::text, ',' ORDER BY id)) FROM patients"
                )
            finally:
                await baseline.close()
            shapes.append((born, [tuple(row.values()) for row in rows]))
    assert shapes[0] == shapes[1]


async def test_who_is_cast_does_not_hang_on_the_weekday(clinic: Clinic) -> None:
    cast = suite()["personas"]["select"]
    query = f"SELECT id, upcoming, this_week, visit_weekday, visits, other_id FROM ({cast}) AS c ORDER BY id"
    seen = []
    monday = datetime.now().astimezone().date()
    monday -= timedelta(days=monday.weekday())
    async with clinic.fork() as (_, admin):
        for offset in (0, 4, 6):
            await set_clock(admin, f"{monday + timedelta(days=offset)}T16:30:00")
            seen.append([tuple(row.values()) for row in await admin.fetch(query)])
    assert seen[0] == seen[1] == seen[2]


async def test_rules_name_only_what_there_is(clinic: Clinic, modules: Mapping[str, ModuleType]) -> None:
    baseline = await clinic.server.connect(clinic.template.baseline)
    try:
        rows = await baseline.fetch(
            "SELECT table_name AS table, array_agg(column_name::text) AS columns"
            " FROM information_schema.columns WHERE table_schema = 'public' GROUP BY 1"
        )
    finally:
        await baseline.close()
    rules = parse_rules(yaml.safe_load((FOLDER / "rules.yaml").read_text(encoding="utf-8")))
    tools = [name for name, value in vars(modules["tools"]).items() if is_tool(value)]
    problems = check_names(
        rules,
        {row["table"]: row["columns"] for row in rows},
        persona=clinic.cast.columns,
        tools=tools,
        externals=["send_sms"],
    )
    used = Counter(name for case in suite()["cases"] for name in case["rubric"])
    assert problems == []
    assert set(used) == set(rules)


def test_every_tool_describes_itself_to_a_model(modules: Mapping[str, ModuleType]) -> None:
    tools = {name: value for name, value in vars(modules["tools"]).items() if is_tool(value)}
    assert set(tools) == {
        "book_appointment",
        "cancel_appointment",
        "find_patient",
        "find_slots",
        "list_appointments",
        "list_insurers",
        "reschedule_appointment",
        "text_patient",
        "today",
        "update_insurance",
    }
    for tool in tools.values():
        described = schema(tool)
        assert described["description"]
        for name, parameter in described["input_schema"]["properties"].items():
            assert parameter.get("description"), f"{described['name']}.{name}"


async def test_the_front_desk_sees_no_sensitive_note_and_cannot_write_any(clinic: Clinic) -> None:
    async with clinic.fork() as (fork, admin):
        hidden = await admin.fetchrow(
            "SELECT a.patient_id, n.body FROM encounter_notes n"
            " JOIN appointments a ON a.id = n.appointment_id"
            " WHERE n.sensitive ORDER BY a.starts_at DESC LIMIT 1"
        )
        async with clinic.on_fork(fork):
            past = await clinic.modules["tools"].list_appointments(hidden["patient_id"], "past")
            db = clinic.modules["tools"].db
            visible = await db.fetchval("SELECT count(*) FROM encounter_notes WHERE sensitive")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.execute("DELETE FROM encounter_notes")
    assert past
    assert hidden["body"] not in {visit["note"] for visit in past}
    assert visible == 0


async def test_a_taken_slot_is_refused_by_name(clinic: Clinic) -> None:
    tools, refusals = clinic.modules["tools"], clinic.modules["refusals"]
    async with clinic.fork() as (fork, _), clinic.on_fork(fork):
        day = (await tools.today())["date"] + timedelta(days=7)
        slot, other = await tools.find_slots(
            "follow_up", day, day + timedelta(days=7), "family medicine", limit=2
        )
        await tools.book_appointment(1001, slot["provider_id"], "follow_up", slot["starts_at"])
        with pytest.raises(refusals.SlotTaken):
            await tools.book_appointment(1002, slot["provider_id"], "follow_up", slot["starts_at"])
        moved = await tools.book_appointment(1002, other["provider_id"], "follow_up", other["starts_at"])
        away = slot["starts_at"].replace(hour=3)
        with pytest.raises(refusals.OutsideHours):
            await tools.reschedule_appointment(moved["id"], away)
        await tools.cancel_appointment(moved["id"])
        with pytest.raises(refusals.NotBooked):
            await tools.cancel_appointment(moved["id"])
        with pytest.raises(refusals.UnknownPatient):
            await tools.find_patient("Nobody Atall", date(1990, 1, 1))


async def test_one_patient_cannot_be_in_two_places(clinic: Clinic) -> None:
    tools, refusals = clinic.modules["tools"], clinic.modules["refusals"]
    async with clinic.fork() as (fork, admin), clinic.on_fork(fork):
        monday = (await tools.today())["date"]
        monday += timedelta(days=8 - monday.isoweekday())
        pair = await admin.fetch(
            "SELECT array_agg(p.id) AS ids FROM providers p JOIN provider_hours h ON h.provider_id = p.id"
            " WHERE h.weekday = 1 AND h.opens <= '10:00' AND h.closes >= '11:00' AND NOT EXISTS ("
            "  SELECT FROM appointments a WHERE a.provider_id = p.id AND a.status = 'booked'"
            "  AND a.starts_at < $1::timestamp + interval '10 minutes' AND a.ends_at > $1::timestamp)",
            datetime.combine(monday, datetime.min.time()).replace(hour=10),
        )
        first, second, *_ = pair[0]["ids"]
        at = datetime.combine(monday, datetime.min.time()).replace(hour=10)
        await tools.book_appointment(1001, first, "follow_up", at)
        with pytest.raises(refusals.AlreadyBooked):
            await tools.book_appointment(1001, second, "follow_up", at)


async def test_production_does_not_get_the_mock(server: Server, modules: Mapping[str, ModuleType]) -> None:
    with pytest.raises(RuntimeError, match="SMS gateway is not configured"):
        await modules["tools"].send_sms("(312) 555-0100", "hello")


async def test_the_template_is_built_from_the_suite_as_it_is_written(clinic: Clinic) -> None:
    again = await build_template(
        clinic.server, clinic_seed(), role="clinic_app", today=datetime.now().astimezone().date()
    )
    assert again.from_cache
    assert set(again.columns) == {f"public.{name}" for name in suite()["seed"]["moves"]}
