"""What the rule-based front desk hears in a line, and how it says dates. No database, no clock."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tools import Kind, Specialty

__all__ = ["Heard", "Intent", "day_after", "hear", "monday_after", "say_day", "say_time"]

Intent = Literal["book", "move", "cancel", "insurance"]

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_ORDINALS = {"first": 1, "earliest": 1, "second": 2, "middle": 2, "third": 3, "last": 3}

_NAME = r"([A-Z][\w'-]*(?:\s[A-Z][\w'-]*)+)"
_INTRODUCES = re.compile(rf"(?i:\b(?:this is|name is|i am|i'm|name:|it's|calling as)\s+){_NAME}")
_BARE_NAME = re.compile(rf"^{_NAME}\W*$")
_ISO = re.compile(r"\b(\d{4})-(\d{2})-(\d{2})\b")
_SLASHES = re.compile(r"\b(\d{1,2})/(\d{1,2})/(\d{4})\b")
_MONTH_FIRST = re.compile(
    rf"\b({'|'.join(_MONTHS)})\s+(\d{{1,2}})(?:st|nd|rd|th)?,?\s+(\d{{4}})", re.IGNORECASE
)
_DAY_FIRST = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({'|'.join(_MONTHS)}),?\s+(\d{{4}})", re.IGNORECASE
)
_MEMBER = re.compile(r"\b[A-Z]{2,4}\d{6,10}[A-Z]?\b")

# The first pattern that is found decides, so the order matters: "cancel my appointment" holds "appointment".
_INTENTS: tuple[tuple[Intent, re.Pattern[str]], ...] = (
    (
        "insurance",
        re.compile(r"\b(?:new|chang\w*|switch\w*|updat\w*|different)\b.*\b(?:insur\w+|policy|plan)\b"),
    ),
    ("cancel", re.compile(r"\bcancel\b|\bcall (?:it|that) off\b|\bwon't (?:be able to )?come\b")),
    (
        "move",
        re.compile(r"\b(?:move|reschedule|postpone)\b|\bchange (?:it|the (?:day|time)|my appointment)\b"),
    ),
    (
        "book",
        re.compile(r"\bbook\b|\bappointment\b|\bvisit\b|\bsee (?:a|my|the|somebody|someone)\b|\bcome in\b"),
    ),
)
_SPECIALTIES: tuple[tuple[Specialty, re.Pattern[str]], ...] = (
    ("family medicine", re.compile(r"\bfamily (?:doctor|medicine|physician)\b|\bgeneral practi")),
    ("internal medicine", re.compile(r"\binternist\b|\binternal medicine\b")),
    ("pediatrics", re.compile(r"\bp(?:a)?ediatric")),
    ("cardiology", re.compile(r"\bcardiolog|\bheart doctor\b")),
    ("dermatology", re.compile(r"\bdermatolog|\bskin doctor\b")),
    ("orthopedics", re.compile(r"\borthop(?:a)?edic")),
    ("women's health", re.compile(r"\bgyn(?:a)?ecolog|\bwomen's health\b")),
    ("behavioral health", re.compile(r"\bpsycholog|\bbehaviou?ral health\b|\btherapist\b")),
)
_KINDS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (
        "new_patient_office",
        re.compile(r"\bnew patient\b|\bfirst (?:visit|appointment|time)\b|\bnever been\b"),
    ),
    ("annual_physical", re.compile(r"\bphysical\b|\bannual\b|\bcheck-?up\b")),
    ("sick_visit", re.compile(r"\bsick\b|\bfever\b|\bcough\b|\bunwell\b")),
)
_REFUSES = re.compile(
    r"\b(?:rather (?:not|keep)|keep (?:it|that|my [\w ]+) to myself|in a (?:hurry|rush)|no time for"
    r"|don't (?:have|remember|know)|do not (?:have|remember|know)|not at hand|could not tell|can't give)\b"
)
_ANY = re.compile(r"\b(?:leave that to you|you decide|you tell me|whichever|any of them|whatever is usual)\b")
_AGAIN = re.compile(r"\b(?:what was that|what did you say|say that again|repeat that|lost the thread)\b")
_YES = re.compile(r"\b(?:yes|yeah|sure|please do|that is right|correct|go ahead|okay|ok|i think so)\b")
_NO = re.compile(r"\b(?:no|nope|not that|wrong)\b")
_BYE = re.compile(
    r"\b(?:goodbye|bye|that is all|that was all|that is everything|that was everything|that will do)\b"
)
# The new policy is said to reach back, so what is still open must be billed to it.
_REACHES_BACK = re.compile(r"\b(?:since|as of|already|everything|all my bills)\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What one line holds; None where it holds nothing of that sort."""

    text: str
    name: str | None
    born: date | None
    intent: Intent | None
    specialty: Specialty | None
    kind: Kind | None
    weekday: int | None  # 1 is Monday
    choice: int | None  # from 1
    member_number: str | None
    any_will_do: bool
    refuses: bool
    reaches_back: bool
    again: bool
    yes: bool
    no: bool
    bye: bool


def hear(line: str) -> Heard:
    """Find everything that the front desk understands in a line."""
    line = line.replace("\u2019", "'")
    text = line.lower()
    named = _INTRODUCES.search(line) or _BARE_NAME.search(line)
    member = _MEMBER.search(line)
    choice = next((number for word, number in _ORDINALS.items() if re.search(rf"\b{word}\b", text)), None)
    if choice is None and (digit := re.search(r"^\W*([1-9])\W*$|\b(?:number|option) ([1-9])\b", text)):
        choice = int(digit[1] or digit[2])
    return Heard(
        text=text,
        name=named[1] if named else None,
        born=_date_in(line),
        intent=next((intent for intent, pattern in _INTENTS if pattern.search(text)), None),
        specialty=next((name for name, pattern in _SPECIALTIES if pattern.search(text)), None),
        kind=next((code for code, pattern in _KINDS if pattern.search(text)), None),
        weekday=next((n for n, day in enumerate(WEEKDAYS, start=1) if day in text), None),
        choice=choice,
        member_number=member[0] if member else None,
        any_will_do=_ANY.search(text) is not None,
        refuses=_REFUSES.search(text) is not None,
        reaches_back=_REACHES_BACK.search(text) is not None,
        again=_AGAIN.search(text) is not None,
        yes=_YES.search(text) is not None,
        no=_NO.search(text) is not None,
        bye=_BYE.search(text) is not None,
    )


def _date_in(line: str) -> date | None:
    """The first calendar date in a line, however it is written; None when there is none or it cannot be."""
    try:
        if found := _ISO.search(line):
            return date(int(found[1]), int(found[2]), int(found[3]))
        if found := _SLASHES.search(line):
            return date(int(found[3]), int(found[1]), int(found[2]))
        if found := _MONTH_FIRST.search(line):
            return date(int(found[3]), _MONTHS.index(found[1].lower()) + 1, int(found[2]))
        if found := _DAY_FIRST.search(line):
            return date(int(found[3]), _MONTHS.index(found[2].lower()) + 1, int(found[1]))
    except ValueError:
        return None
    return None


def monday_after(today: date) -> date:
    """The Monday with which next week begins."""
    return today + timedelta(days=8 - today.isoweekday())


def day_after(today: date, weekday: int) -> date:
    """The next day of that name; a day's own name means the one a week from it."""
    return today + timedelta(days=(weekday - today.isoweekday() - 1) % 7 + 1)


def say_day(day: date) -> str:
    """`Thursday, December 3`."""
    return f"{WEEKDAYS[day.isoweekday() - 1].capitalize()}, {_MONTHS[day.month - 1].capitalize()} {day.day}"


def say_time(moment: datetime) -> str:
    """`Thursday, December 3 at 9:10`."""
    return f"{say_day(moment.date())} at {moment.hour}:{moment.minute:02d}"
