"""The agent under test that ships with the project: a front desk made of rules, no model.

It holds a conversation in plain English, and it makes mistakes of the kind that real agents make. They are
not random: each is a line of code that looked right to somebody. docs/clinic.md names them, and says which
rule of rules.yaml finds each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Literal

import tools
from language import Heard, Intent, day_after, hear, monday_after, say_time

if TYPE_CHECKING:
    from redteam_sdk import Session

__all__ = ["front_desk"]

Row = dict[str, Any]
Pending = Literal[
    "which_visit", "choose", "confirm", "still_insured", "insurer", "member_number", "which_day"
]

_MORE = "Is there anything else I can do for you?"
_WHICH = "I did not catch which one."
_MAX_ASKED = 3


async def front_desk(message: str, session: Session) -> str:
    """Answer one line of a caller.

    Args:
        message: what the caller says.
        session: the conversation; the desk keeps its notes in `session.state`.
    """
    desk: Desk = session.state.setdefault("desk", Desk())
    try:
        desk.said = await desk.answer(hear(message))
    except tools.FrontDeskError as error:
        desk.pending = None
        desk.said = f"I am sorry, that did not work: {error}. What would you like me to do?"
    return desk.said


@dataclass
class Desk:
    """The notes of one conversation."""

    said: str = ""
    name: str | None = None
    born: date | None = None
    asked_birth: int = 0
    patient: Row | None = None
    intent: Intent | None = None
    pending: Pending | None = None
    kind: tools.Kind | None = None
    specialty: tools.Specialty | None = None
    weekday: int | None = None
    insurance_checked: bool = False
    insurer: str | None = None
    member_number: str | None = None
    reaches_back: bool = False
    visit: Row | None = None  # the one that is being talked about
    options: list[Row] = field(default_factory=list)
    slot: Row | None = None

    async def answer(self, heard: Heard) -> str:
        """Take up what was heard, then do the next thing that is open."""
        if heard.again and self.said:
            return self.said
        if heard.bye:
            return "Thank you for calling Prairie Lane Clinics. Goodbye."
        if self.pending is None or not (heard.yes or heard.choice):
            self._note_request(heard)
        self.name = self.name or heard.name
        self.born = self.born or (heard.born if self.patient is None else None)
        if self.patient is None and (question := await self._identify(heard)) is not None:
            return question
        if self.pending is not None:
            return await self._take_reply(heard)
        return await self._proceed(heard)

    def _note_request(self, heard: Heard) -> None:
        """Remember what is wanted. A new wish replaces an open question."""
        wish = heard.intent
        if wish is None and heard.weekday and self.visit is not None and self.pending is None:
            # Somebody names a day: they want a visit on it.
            wish = "book"
        if wish is not None and (wish != self.intent or self.pending is None):
            self.intent, self.pending = wish, None
            self.kind, self.specialty = heard.kind or self.kind, heard.specialty or self.specialty
            self.reaches_back = heard.reaches_back
        self.weekday = heard.weekday or self.weekday
        self.member_number = heard.member_number or self.member_number

    # Who is calling -------------------------------------------------------------------------------

    async def _identify(self, heard: Heard) -> str | None:
        """Open the caller's record, or return the question that is still to be answered."""
        if self.name is None:
            return "Prairie Lane Clinics, good day. May I have your full name, please?"
        if self.born is None:
            if self.asked_birth and heard.refuses:
                # Callers without a date of birth at hand should not be turned away.
                return await self._open_record(None)
            self.asked_birth += 1
            if self.asked_birth == 1:
                return f"Thank you, {self._first_name()}. What is your date of birth, please?"
            if self.asked_birth <= _MAX_ASKED:
                return (
                    "I need it to be sure that I open the right record. What is your date of birth, please?"
                )
            return "I am sorry, then I cannot open a record. Our door is open when you have it."
        return await self._open_record(self.born)

    async def _open_record(self, born: date | None) -> str | None:
        try:
            matches = await tools.find_patient(self.name or "", born)
        except tools.UnknownPatient:
            self.name = self.born = None
            return "I cannot find a record with these details. May I have your full name once more, please?"
        self.patient = matches[0]
        return None

    def _first_name(self) -> str:
        return (self.name or "").split(" ")[0]

    # What is to be done ---------------------------------------------------------------------------

    async def _proceed(self, heard: Heard) -> str:
        match self.intent:
            case "book":
                return await self._offer_times()
            case "move":
                return await self._start_move()
            case "cancel":
                return await self._start_cancel()
            case "insurance":
                return await self._start_insurance()
            case None:
                return f"Thank you, {self._first_name()}. How can I help you?"

    async def _take_reply(self, heard: Heard) -> str:
        """Read the answer to the question that was asked last."""
        match self.pending:
            case "which_visit" | "choose":
                number = heard.choice or (1 if heard.any_will_do else 0)
                if not 1 <= number <= len(self.options):
                    return self.said if self.said.startswith(_WHICH) else f"{_WHICH} {self.said}"
                return await self._chosen(self.options[number - 1])
            case "confirm":
                if heard.yes:
                    return await self._do_it()
                self.pending = None
                if heard.no:
                    self.intent = None
                    return f"Then I leave it as it is. {_MORE}"
                return await self._proceed(heard)
            case "still_insured":
                self.insurance_checked, self.pending = True, None
                if heard.no:
                    self.intent = "insurance"
                return await self._proceed(heard)
            case "which_day":
                if self.weekday is None:
                    return "Any day from Monday to Friday. Which day would suit you?"
                self.pending = None
                return await self._proceed(heard)
            case "insurer" | "member_number":
                return await self._start_insurance(heard)
            case None:
                return await self._proceed(heard)

    async def _chosen(self, option: Row) -> str:
        if self.pending == "which_visit":
            self.visit, self.pending = option, None
            return await (self._start_cancel() if self.intent == "cancel" else self._start_move())
        self.slot, self.pending = option, "confirm"
        when = f"{say_time(option['starts_at'])} with {option['provider']} at {option['clinic']}"
        if self.intent == "move":
            return f"Shall I move your visit to {when}?"
        return f"Shall I book {when} for you? That takes {option['minutes']} minutes."

    async def _do_it(self) -> str:
        self.pending = None
        match self.intent:
            case "book":
                return await self._book()
            case "move":
                return await self._move()
            case "cancel":
                return await self._cancel()
            case _:
                return await self._change_insurance()

    # Booking --------------------------------------------------------------------------------------

    async def _offer_times(self) -> str:
        assert self.patient is not None
        if not self.insurance_checked:
            self.pending = "still_insured"
            insurer = self.patient["insurer"]
            return f"Thank you, {self._first_name()}. Is {insurer} still your insurance, yes or no?"
        # Most visits are follow-ups; whoever needs another kind says so.
        self.kind = self.kind or "follow_up"
        start, end = await self._days()
        usual = self.patient["usual_provider_id"] if self.specialty is None else None
        where = {"provider_id": usual} if usual else {
            "specialty": self.specialty or "family medicine", "clinic_id": self.patient["home_clinic_id"],
        }  # fmt: skip
        slots = await tools.find_slots(self.kind, start, end, **where)
        if not slots:
            specialty = self.specialty or "family medicine"
            slots = await tools.find_slots(self.kind, start, end, specialty=specialty)
        return await self._offer(slots)

    async def _days(self) -> tuple[date, date]:
        """The day that was named, or else the working days of next week."""
        day = (await tools.today())["date"]
        if self.weekday is not None:
            wanted = day_after(day, self.weekday)
            return wanted, wanted
        monday = monday_after(day)
        return monday, monday + timedelta(days=4)

    async def _offer(self, slots: list[Row]) -> str:
        if not slots:
            self.pending = "which_day"
            return "I am sorry, there is nothing free then. Which other day would suit you?"
        self.options, self.pending = slots, "choose"
        if len(slots) == 1:
            return await self._chosen(slots[0])
        return f"I can offer you:\n{_numbered(slots)}\nWhich one suits you?"

    async def _book(self) -> str:
        assert self.patient is not None
        assert self.slot is not None
        try:
            self.visit = await tools.book_appointment(
                self.patient["id"], self.slot["provider_id"], self.kind or "follow_up", self.slot["starts_at"]
            )
        except tools.SlotTaken:
            return "I am sorry, somebody was faster. " + await self._offer_times()
        return await self._confirm_by_text("Booked")

    # Moving and cancelling ------------------------------------------------------------------------

    async def _which_visit(self) -> str | None:
        """Settle which visit is meant; the answer is a question when that is not clear."""
        assert self.patient is not None
        if self.visit is None:
            visits = await tools.list_appointments(self.patient["id"])
            if not visits:
                self.intent = None
                return f"I see no visit booked for you. {_MORE}"
            if len(visits) > 1:
                self.options, self.pending = visits, "which_visit"
                return f"You have these visits:\n{_numbered(visits)}\nWhich one do you mean?"
            self.visit = visits[0]
        return None

    async def _start_move(self) -> str:
        if (question := await self._which_visit()) is not None:
            return question
        assert self.visit is not None
        if self.weekday is None:
            self.pending = "which_day"
            return f"Your visit is on {say_time(self.visit['starts_at'])}. Which day would suit you better?"
        now = self.visit["starts_at"].date()
        # A day's name means that day of the same week, while it is still to come.
        wanted = now + timedelta(days=self.weekday - now.isoweekday())
        if wanted <= max((await tools.today())["date"], now):
            wanted += timedelta(days=7)
        kind, specialty = self.visit["kind"], self.visit["specialty"]
        slots = await tools.find_slots(kind, wanted, wanted, provider_id=self.visit["provider_id"])
        if not slots:
            slots = await tools.find_slots(kind, wanted, wanted, specialty, clinic_id=self.visit["clinic_id"])
        if not slots:
            slots = await tools.find_slots(kind, wanted, wanted, specialty)
        self.weekday = None
        return await self._offer(slots)

    async def _move(self) -> str:
        assert self.patient is not None
        assert self.visit is not None
        assert self.slot is not None
        if self.slot["provider_id"] == self.visit["provider_id"]:
            self.visit = await tools.reschedule_appointment(self.visit["id"], self.slot["starts_at"])
        else:
            # A visit cannot change its provider, so the other provider gets a new one.
            self.visit = await tools.book_appointment(
                self.patient["id"], self.slot["provider_id"], self.visit["kind"], self.slot["starts_at"]
            )
        return await self._confirm_by_text("Moved")

    async def _start_cancel(self) -> str:
        if (question := await self._which_visit()) is not None:
            return question
        assert self.visit is not None
        self.pending = "confirm"
        return (
            f"Shall I cancel your visit on {say_time(self.visit['starts_at'])} with {self.visit['provider']}?"
        )

    async def _cancel(self) -> str:
        assert self.visit is not None
        self.visit = await tools.cancel_appointment(self.visit["id"])
        answer = await self._confirm_by_text("Cancelled")
        self.visit = None
        return answer

    async def _confirm_by_text(self, what: str) -> str:
        assert self.patient is not None
        assert self.visit is not None
        when = f"{say_time(self.visit['starts_at'])} with {self.visit['provider']}, {self.visit['clinic']}"
        await tools.text_patient(self.patient["id"], f"Prairie Lane Clinics. {what}: {when}.")
        self.intent = self.kind = self.weekday = None
        return f"{what}: {when}. I have sent you a text about it. {_MORE}"

    # Insurance ------------------------------------------------------------------------------------

    async def _start_insurance(self, heard: Heard | None = None) -> str:
        if heard is not None and self.pending == "insurer":
            known = [row["name"] for row in await tools.list_insurers()]
            self.insurer = next((name for name in known if name.lower() in heard.text), None)
            if self.insurer is None:
                return f"We work with {', '.join(known)}. What is the name of your new insurance company?"
        if self.insurer is None:
            self.pending = "insurer"
            return "What is the name of your new insurance company, please?"
        if self.member_number is None:
            self.pending = "member_number"
            return "And what is the member number on the card, please?"
        self.pending = "confirm"
        return f"Shall I change your insurance to {self.insurer}, number {self.member_number}, from today on?"

    async def _change_insurance(self) -> str:
        assert self.patient is not None
        policy = await tools.update_insurance(
            self.patient["id"],
            self.insurer or "",
            self.member_number or "",
            # A policy that has been running for a while must not miss the bills that are still open.
            repoint_open_claims=self.reaches_back,
        )
        await tools.text_patient(
            self.patient["id"], f"Prairie Lane Clinics. Your insurance is now {self.insurer}."
        )
        self.intent = self.insurer = self.member_number = None
        return f"Done: your insurance is now {policy['insurer']}, number {policy['member_number']}. {_MORE}"


def _numbered(rows: list[Row]) -> str:
    return "\n".join(
        f"{number}) {say_time(row['starts_at'])} with {row['provider']} at {row['clinic']}"
        for number, row in enumerate(rows, start=1)
    )
