"""The people and the calendar of the clinic world, drawn from one seeded generator."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING

import vocabulary as words

if TYPE_CHECKING:
    import random

ANCHOR = date(2026, 11, 30)
PATIENTS = 2400
NEWCOMERS = 320  # registered, never seen: the personas of a first visit
NAMESAKES = 36
WEEKS_AHEAD = 10
FIRST_PATIENT = 1001
# Booked visits by week from the anchor's: a calendar is fullest where it is nearest.
BOOKED_PER_WEEK = (150, 260, 210, 150, 110, 80, 60, 45, 35, 25)
Sessions = tuple[tuple[time, time], ...]
LUNCH = (time(12, 0), time(13, 0))


@dataclass
class Provider:
    """A clinician with a weekly pattern and what is already taken in it."""

    id: int
    name: str
    credential: str
    specialty: str
    clinic: int
    hours: dict[int, Sessions]  # ISO weekday -> sessions
    days_off: set[date] = field(default_factory=set)
    taken: dict[date, list[tuple[datetime, datetime]]] = field(default_factory=lambda: defaultdict(list))


@dataclass
class Patient:
    """A person, whom they usually see, and the days on which they already have a visit."""

    id: int
    name: str
    born: date
    sex: str
    phone: str
    email: str | None
    street: str
    city: str
    zip: str
    clinic: int
    usual: Provider
    since: datetime
    busy: set[date] = field(default_factory=set)


@dataclass
class Coverage:
    """One policy, from a day until a day (None: the current one)."""

    id: int
    patient: int
    insurer: int
    member: str
    valid_from: date
    valid_to: date | None


@dataclass
class Visit:
    """One line of a calendar, past or to come."""

    patient: Patient
    provider: Provider
    kind: str
    starts: datetime
    status: str
    reason: str
    via: str
    made: datetime
    id: int = 0


def make_providers(rng: random.Random) -> list[Provider]:
    """Forty clinicians, eight a clinic. One in three does not work on Thursdays."""
    names = words.PROVIDER_NAMES
    providers: list[Provider] = []
    for clinic in range(1, 6):
        specialties = ("family medicine",) * 3 + ("internal medicine", "pediatrics") + words.EXTRA[clinic - 1]
        for seat, specialty in enumerate(specialties):
            number = len(providers) + 1
            # The seat decides the days, so that each clinic has a family doctor on each weekday.
            days = {0: (1, 2, 3, 4, 5), 1: (1, 2, 3, 5), 2: (2, 3, 4, 5)}.get(
                seat, rng.choice(((1, 2, 4, 5), (1, 3, 4), (1, 2, 3, 4, 5), (1, 2, 3, 5)))
            )
            early = rng.random() < 0.5
            sessions: Sessions = (
                (time(8, 0) if early else time(9, 0), LUNCH[0]),
                (LUNCH[1], time(16, 0) if early else time(17, 0)),
            )
            hours: dict[int, Sessions] = {
                day: sessions if rng.random() < 0.85 else sessions[:1] for day in days
            }
            credential = (
                "PsyD"
                if specialty == "behavioral health"
                else rng.choices(("MD", "DO", "NP", "PA"), (6, 2, 2, 1))[0]
            )
            provider = Provider(number, names[number - 1], credential, specialty, clinic, hours)
            for _ in range(rng.randint(2, 5)):
                week = rng.choice([-40, -31, -22, -13, -6, 2, 3, 4, 5, 6, 7, 8])
                provider.days_off.add(ANCHOR + timedelta(weeks=week, days=rng.randint(0, 4)))
            providers.append(provider)
    return providers


def make_patients(rng: random.Random, providers: list[Provider]) -> list[Patient]:
    """People of all ages; a few of them share a full name."""
    patients: list[Patient] = []
    used: set[str] = set()
    for index in range(PATIENTS):
        sex = rng.choices(("female", "male", "other"), (52, 47, 1))[0]
        first = rng.choice(words.FIRST_NAMES[sex] if sex != "other" else words.FIRST_NAMES["female"])
        name = f"{first} {rng.choice(words.LAST_NAMES)}"
        while name in used:
            first = rng.choice(words.FIRST_NAMES["male" if sex == "male" else "female"])
            name = f"{first} {rng.choice(words.LAST_NAMES)}"
        if index >= PATIENTS - NAMESAKES:
            twin = patients[rng.randrange(PATIENTS - NAMESAKES)]
            name, sex = twin.name, twin.sex
        used.add(name)
        child = rng.random() < 0.12 and index < PATIENTS - NAMESAKES
        age_days = int(rng.triangular(365, 6200, 3000) if child else rng.triangular(18.5, 92, 46) * 365.25)
        born = ANCHOR - timedelta(days=age_days)
        clinic = rng.choices(range(1, 6), (24, 22, 20, 18, 16))[0]
        wanted = (
            ("pediatrics",) if child else rng.choice((("family medicine",),) * 4 + (("internal medicine",),))
        )
        usual = rng.choice([p for p in providers if p.clinic == clinic and p.specialty in wanted])
        slug = name.lower().replace(" ", ".").replace("'", "")
        area = rng.choice(("312", "773", "630", "708", "847", "224"))
        patients.append(
            Patient(
                id=FIRST_PATIENT + index,
                name=name,
                born=born,
                sex=sex,
                phone=f"({area}) 555-{rng.randrange(10000):04d}",
                email=f"{slug}{rng.randrange(10, 99)}@example.org" if rng.random() < 0.8 else None,
                street=f"{rng.randrange(100, 9900)} {rng.choice(words.STREETS)}",
                city=rng.choice(words.CITIES[clinic - 1]),
                zip=f"60{rng.randrange(4, 657):03d}",
                clinic=clinic,
                usual=usual,
                since=datetime.combine(ANCHOR - timedelta(days=rng.randint(5, 1500)), time(10, 15)),
            )
        )
    return patients


def make_coverages(rng: random.Random, patients: list[Patient]) -> dict[int, list[Coverage]]:
    """One to three policies for each patient; the last one is current."""
    by_patient: dict[int, list[Coverage]] = {}
    number = 0
    for patient in patients:
        policies = rng.choices((1, 2, 3), (70, 24, 6))[0]
        ends = sorted(rng.sample(range(20, 700), policies - 1), reverse=True)
        starts = [ends[0] + rng.randint(200, 900) if ends else rng.randint(400, 1600), *ends]
        insurers = rng.sample(range(1, len(words.INSURERS) + 1), policies)
        by_patient[patient.id] = []
        for which, start in enumerate(starts):
            number += 1
            until = ANCHOR - timedelta(days=ends[which]) if which < len(ends) else None
            insurer = insurers[which]
            member = (
                f"{words.INSURERS[insurer - 1][1][:3]}{rng.randrange(10**8):08d}{rng.choice('ABCDEFGHJKLMN')}"
            )
            by_patient[patient.id].append(
                Coverage(number, patient.id, insurer, member, ANCHOR - timedelta(days=start), until)
            )
    return by_patient


def book(
    rng: random.Random, provider: Provider, patient: Patient, day: date, minutes: int
) -> datetime | None:
    """Find a free time in a provider's day and take it; None when there is none.

    Nobody has two visits on one day, nor a visit on a day when the provider is away.
    """
    sessions = provider.hours.get(day.isoweekday(), ())
    if not sessions or day in provider.days_off or day in patient.busy:
        return None
    length = timedelta(minutes=minutes)
    for _ in range(6):
        opens, closes = rng.choice(sessions)
        first, last = datetime.combine(day, opens), datetime.combine(day, closes) - length
        steps = int((last - first) / timedelta(minutes=10))
        start = first + timedelta(minutes=10 * rng.randint(0, steps))
        if all(start + length <= begin or start >= end for begin, end in provider.taken[day]):
            provider.taken[day].append((start, start + length))
            patient.busy.add(day)
            return start
    return None


def whom_to_see(rng: random.Random, patient: Patient, providers: list[Provider]) -> Provider:
    """Mostly the usual clinician, now and then a specialist of any of the clinics."""
    if rng.random() < 0.82 or patient.usual.specialty == "pediatrics":
        return patient.usual
    return rng.choice([p for p in providers if p.specialty in words.REFERRED])


def make_past(rng: random.Random, patients: list[Patient], providers: list[Provider]) -> list[Visit]:
    """The visits of the year before the anchor; the first one of a patient is a new-patient visit."""
    visits: list[Visit] = []
    for patient in patients[NEWCOMERS:]:
        count = rng.choices((1, 2, 3, 4, 5), (34, 32, 19, 10, 5))[0]
        days = sorted(rng.sample(range(4, 364), count), reverse=True)
        seen: set[str] = set() if rng.random() < 0.55 else {patient.usual.specialty}
        for ago in days:
            provider = whom_to_see(rng, patient, providers)
            day = ANCHOR - timedelta(days=ago)
            day -= timedelta(days=max(0, day.isoweekday() - 5))
            kind = "new_patient_office" if provider.specialty not in seen else rng.choice(words.RETURN_KINDS)
            start = book(rng, provider, patient, day, words.KINDS[kind][1])
            if start is None:
                continue
            status = rng.choices(("completed", "no_show", "cancelled"), (86, 6, 8))[0]
            if status == "completed":
                seen.add(provider.specialty)
            made = datetime.combine(day - timedelta(days=rng.randint(1, 24)), time(rng.randint(8, 16), 20))
            visits.append(
                Visit(
                    patient,
                    provider,
                    kind,
                    start,
                    status,
                    rng.choice(words.REASONS[provider.specialty]),
                    rng.choices(("front desk", "portal", "referral"), (5, 3, 1))[0],
                    made,
                )
            )
            patient.since = min(patient.since, made)
    return visits


def make_future(
    rng: random.Random, patients: list[Patient], providers: list[Provider], past: list[Visit]
) -> list[Visit]:
    """What is booked for the ten weeks to come: at most one visit for a patient, none for a newcomer."""
    known = {(v.patient.id, v.provider.specialty) for v in past if v.status == "completed"}
    candidates = patients[NEWCOMERS:]
    rng.shuffle(candidates)
    visits: list[Visit] = []
    for week, wanted in enumerate(BOOKED_PER_WEEK):
        booked = 0
        while booked < wanted:
            patient = candidates.pop()
            provider = whom_to_see(rng, patient, providers)
            kind = (
                rng.choice(words.RETURN_KINDS)
                if (patient.id, provider.specialty) in known
                else "new_patient_office"
            )
            day = ANCHOR + timedelta(weeks=week, days=rng.randint(0, 4))
            start = book(rng, provider, patient, day, words.KINDS[kind][1])
            if start is None:
                candidates.insert(0, patient)
                continue
            made = datetime.combine(ANCHOR - timedelta(days=rng.randint(3, 40)), time(rng.randint(8, 16), 40))
            reason = rng.choice(words.REASONS[provider.specialty])
            via = rng.choices(("front desk", "portal", "referral"), (5, 3, 1))[0]
            visits.append(Visit(patient, provider, kind, start, "booked", reason, via, made))
            patient.since = min(patient.since, made)
            booked += 1
    return visits
