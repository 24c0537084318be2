"""Writes data.sql: a year of five clinics, and ten weeks to come.

    python seeds/clinic/generate.py

The same program writes the same bytes, on any machine and in any year: it draws from a generator of its own
with a fixed seed, and "today" is the anchor, Monday 2026-11-30. The platform moves every date by whole weeks
when it builds a template, so nothing here has to be generated again. Only the standard library is used.
"""

from __future__ import annotations

import random
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import vocabulary as words
from world import (
    ANCHOR,
    FIRST_PATIENT,
    NEWCOMERS,
    Coverage,
    Visit,
    make_coverages,
    make_future,
    make_past,
    make_patients,
    make_providers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def copy_block(table: str, columns: str, rows: Iterable[Sequence[object]]) -> str:
    r"""A COPY block as psql reads it: tabs between cells, `\N` for null."""

    def cell(value: object) -> str:
        if value is None:
            return r"\N"
        if isinstance(value, bool):
            return "t" if value else "f"
        text = str(value)
        return text.replace("\\", r"\\").replace("\t", r"\t").replace("\n", r"\n")

    lines = "".join("\t".join(map(cell, row)) + "\n" for row in rows)
    return f"COPY {table} ({columns}) FROM stdin;\n{lines}\\.\n\n"


def instant(moment: datetime) -> str:
    """An instant of `timestamptz`, written with the winter offset of Chicago."""
    return f"{moment:%Y-%m-%d %H:%M}-06"


def note_rows(rng: random.Random, visits: list[Visit]) -> list[tuple[object, ...]]:
    """A note for most completed visits; those of behavioral health, and a few others, are sensitive."""
    rows: list[tuple[object, ...]] = []
    for visit in visits:
        if visit.status != "completed" or rng.random() > 0.8:
            continue
        sensitive = visit.provider.specialty == "behavioral health" or rng.random() < 0.05
        opening = rng.choice(words.SENSITIVE_NOTES if sensitive else words.FINDINGS[visit.provider.specialty])
        body = f"{visit.reason.capitalize()}. {opening} {rng.choice(words.PLANS)}"
        written = visit.starts + timedelta(minutes=words.KINDS[visit.kind][1] + rng.randint(2, 50))
        rows.append((len(rows) + 1, visit.id, instant(written), sensitive, body))
    return rows


def claim_rows(
    rng: random.Random, visits: list[Visit], coverages: dict[int, list[Coverage]]
) -> list[tuple[object, ...]]:
    """A claim for each completed visit, on the policy of its day; the recent ones are still open."""
    rows: list[tuple[object, ...]] = []
    for visit in visits:
        if visit.status != "completed":
            continue
        day = visit.starts.date()
        policy = next(
            (c for c in coverages[visit.patient.id] if c.valid_from <= day < (c.valid_to or date.max)), None
        )
        if policy is None:
            continue
        age = (ANCHOR - day).days
        status = rng.choices(("open", "paid", "denied"), (60, 36, 4) if age < 120 else (6, 88, 6))[0]
        submitted = min(day + timedelta(days=rng.randint(1, 6)), ANCHOR - timedelta(days=1))
        settled = submitted if status == "open" else min(submitted + timedelta(days=24), ANCHOR)
        rows.append(
            (
                len(rows) + 1,
                visit.id,
                policy.id,
                words.KINDS[visit.kind][2],
                status,
                submitted,
                instant(datetime.combine(settled, time(7, 0))),
            )
        )
    return rows


def conversations(
    rng: random.Random, visits: list[Visit]
) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    """Message threads, a reminder or a question each, for about a quarter of the visits."""
    threads: list[tuple[object, ...]] = []
    messages: list[tuple[object, ...]] = []
    for visit in visits:
        if rng.random() > 0.24:
            continue
        channel, topic, lines = rng.choice(words.EXCHANGES)
        opened = visit.made + timedelta(hours=rng.randint(1, 30), minutes=rng.randint(0, 59))
        opened = min(opened, datetime.combine(ANCHOR - timedelta(days=1), time(17, 0)))
        thread = len(threads) + 1
        threads.append((thread, visit.patient.id, channel, topic, instant(opened)))
        for gap, (direction, line) in enumerate(lines):
            body = line.format(first=visit.patient.name.split()[0], doctor=visit.provider.name.split()[-1])
            messages.append(
                (len(messages) + 1, thread, direction, body, instant(opened + timedelta(minutes=17 * gap)))
            )
    return threads, messages


def generate() -> str:
    """The text of data.sql."""
    rng = random.Random(20261130)
    providers = make_providers(rng)
    patients = make_patients(rng, providers)
    coverages = make_coverages(rng, patients)
    past = make_past(rng, patients, providers)
    future = make_future(rng, patients, providers, past)
    visits = sorted(past + future, key=lambda v: (v.made, v.patient.id, v.starts))
    for number, visit in enumerate(visits, start=20001):
        visit.id = number
    notes = note_rows(rng, visits)
    claims = claim_rows(rng, visits, coverages)
    threads, messages = conversations(rng, visits)
    tags = [
        (v.id, rng.choice(words.TAGS)) for v in visits for _ in range(rng.choices((0, 1, 2), (86, 12, 2))[0])
    ]
    hours = [
        (p.id, day, f"{opens:%H:%M}", f"{closes:%H:%M}")
        for p in providers
        for day, sessions in sorted(p.hours.items())
        for opens, closes in sessions
    ]
    off = [(p.id, day, rng.choice(words.AWAY)) for p in providers for day in sorted(p.days_off)]

    blocks = [
        "-- Made by generate.py; do not edit. Dates hang on the anchor, Monday 2026-11-30.\n\n",
        "-- The log's trigger would stamp these rows with the moment of loading.\n"
        "ALTER TABLE appointments DISABLE TRIGGER USER;\n\n",
        copy_block("clinics", "id, name, street, city, phone", words.CLINICS),
        copy_block(
            "providers",
            "id, full_name, credential, specialty, clinic_id",
            ((p.id, p.name, p.credential, p.specialty, p.clinic) for p in providers),
        ),
        copy_block("provider_hours", "provider_id, weekday, opens, closes", hours),
        copy_block("provider_time_off", "provider_id, day, reason", off),
        copy_block(
            "visit_kinds",
            "code, label, minutes, fee_cents",
            ((code, *facts) for code, facts in words.KINDS.items()),
        ),
        copy_block(
            "insurers",
            "id, name, payer_code, phone",
            ((i, *facts) for i, facts in enumerate(words.INSURERS, start=1)),
        ),
        copy_block(
            "patients",
            "id, full_name, date_of_birth, sex, phone, email, street, city, zip, home_clinic_id,"
            " usual_provider_id, created_at, updated_at",
            (
                (
                    p.id,
                    p.name,
                    p.born,
                    p.sex,
                    p.phone,
                    p.email,
                    p.street,
                    p.city,
                    p.zip,
                    p.clinic,
                    # A newcomer has no usual clinician yet.
                    p.usual.id if p.id >= FIRST_PATIENT + NEWCOMERS else None,
                    instant(p.since),
                    instant(p.since),
                )
                for p in patients
            ),
        ),
        copy_block(
            "coverages",
            "id, patient_id, insurer_id, member_number, valid_from, valid_to, created_at, updated_at",
            (
                (
                    c.id,
                    c.patient,
                    c.insurer,
                    c.member,
                    c.valid_from,
                    c.valid_to,
                    instant(datetime.combine(c.valid_from, time(9, 0))),
                    instant(datetime.combine(c.valid_to or c.valid_from, time(9, 0))),
                )
                for policies in coverages.values()
                for c in policies
            ),
        ),
        copy_block(
            "appointments",
            "id, patient_id, provider_id, clinic_id, kind, starts_at, minutes, status, reason, booked_via,"
            " created_at, updated_at",
            (
                (
                    v.id,
                    v.patient.id,
                    v.provider.id,
                    v.provider.clinic,
                    v.kind,
                    f"{v.starts:%Y-%m-%d %H:%M}",
                    words.KINDS[v.kind][1],
                    v.status,
                    v.reason,
                    v.via,
                    instant(v.made),
                    instant(v.made if v.status == "booked" else v.starts + timedelta(hours=1)),
                )
                for v in visits
            ),
        ),
        copy_block("visit_tags", "appointment_id, tag", tags),
        copy_block("encounter_notes", "id, appointment_id, written_at, sensitive, body", notes),
        copy_block(
            "claims",
            "id, appointment_id, coverage_id, amount_cents, status, submitted_on, updated_at",
            claims,
        ),
        copy_block("message_threads", "id, patient_id, channel, topic, opened_at", threads),
        copy_block("messages", "id, thread_id, direction, body, sent_at", messages),
        "INSERT INTO appointment_log (at, appointment_id, patient_id, event, starts_at)\n"
        "SELECT created_at, id, patient_id, 'booked', starts_at FROM appointments\n"
        "UNION ALL\n"
        "SELECT updated_at, id, patient_id, status, starts_at FROM appointments"
        " WHERE status <> 'booked';\n\n",
        "ALTER TABLE appointments ENABLE TRIGGER USER;\n\n",
    ]
    blocks.extend(
        f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), (SELECT max(id) FROM {table}));\n"
        for table in ("patients", "coverages", "appointments", "encounter_notes", "claims", *words.THREADED)
    )
    return "".join(blocks)


if __name__ == "__main__":
    Path(__file__).with_name("data.sql").write_text(generate(), encoding="utf-8", newline="\n")
