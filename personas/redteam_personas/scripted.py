"""The scripted actor: no model, the same lines for the same seed, disposition and script.

It checks the harness and rule-based agents; it says nothing about how a person or a model would talk. What it
says in a turn is the first of these that applies:

1. The agent asks for facts: revealed ones are told, held-back ones put off, missing ones denied.
2. A reply of the case matches the agent's line.
3. The agent waits for a yes: it gets one. A question with an `or` in it, or numbered options: the first.
4. The next line of `says`, where it need not wait for a match or the match has come.
5. The agent asks something else, or the next line still waits: "I leave that to you", twice in a row at most.
6. Farewell.

An offer of more help skips the lines that still wait: the person gives up on them.

What a disposition adds to that is data (`OfflinePhrases`): something said before the first request or behind
it, all requests at once, a first yes that is taken back, and what is still tried before the farewell.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, TypeVar

from redteam_personas.actor import Line
from redteam_personas.questions import (
    asks_confirmation,
    asks_for,
    asks_question,
    offers_choice,
    offers_more,
)
from redteam_personas.spellings import spoken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from redteam_personas.actor import View
    from redteam_personas.disposition import Disposition
    from redteam_personas.offline import Offline

__all__ = ["ScriptedActor"]

_T = TypeVar("_T")
_MAX_SHRUGS_IN_A_ROW = 2
_SAY_AGAIN_TURNS = (2, 3, 4)


class ScriptedActor:
    """Plays one persona in one conversation; it remembers what it said, so it is not shared.

    Args:
        offline: the case's lines with the persona's values in them (`OfflineSpec.fill`).
        disposition: whose phrases it uses.
        seed: chooses among phrases. Nothing else is random.
    """

    def __init__(self, offline: Offline, disposition: Disposition, *, seed: int) -> None:
        self._offline = offline
        self._phrases = disposition.offline
        self._seed = seed
        self._next = 0  # of offline.says
        self._cue_came = False  # the next line's `when` matched at some time since it became the next
        self._given = [0] * len(offline.replies)
        self._told: set[str] = set()
        self._greeted = not self._phrases.opens
        self._opened = False
        self._shrugs = 0
        self._said_again = not self._phrases.say_again
        self._pressed = 0  # of phrases.presses
        self._wavered = not self._phrases.wavers
        self._comes_back = False

    async def speak(self, view: View) -> Line:
        """The next line. It never fails, whatever the agent said."""
        heard = view.last_heard
        if self._asks_to_repeat(view, heard):
            return Line(text=self._pick(self._phrases.say_again, view.turn, "say_again"))
        self._listen(heard)
        text = (
            self._answer(view, heard)
            or self._reply(heard)
            or self._assent(view, heard)
            or self._return(view)
            or self._say(view, heard)
            or self._shrug(view, heard)
            or self._press()
        )
        if text is None:
            bye = self._pick(self._phrases.farewell, view.turn, "farewell")
            return Line(text=bye, end=True, reason="the script is played to its end")
        return Line(text=self._colour(text, view.turn))

    def _asks_to_repeat(self, view: View, heard: str) -> bool:
        if self._said_again or not heard or not self._opened:
            return False
        if view.turn < self._pick(_SAY_AGAIN_TURNS, 0, "when"):
            return False
        self._said_again = True
        return True

    def _listen(self, heard: str) -> None:
        if self._next < len(self._offline.says) and (when := self._offline.says[self._next].when):
            self._cue_came = self._cue_came or _matches(when, heard)

    def _answer(self, view: View, heard: str) -> str | None:
        parts: list[str] = []
        for name, asked_by in view.script.asked_by.items():
            if not asks_for(heard, asked_by):
                continue
            label = name.replace("_", " ")
            if name in view.revealed:
                value = view.revealed[name]
                again = name in self._told
                phrase = (
                    self._phrases.answer_again if again else self._pick(self._phrases.answer, view.turn, name)
                )
                parts.append(_put(phrase, fact=label, value=value, spoken=spoken(value)))
                self._told.add(name)
            else:
                kind = self._phrases.lacking if name in view.script.missing else self._phrases.deflect
                parts.append(_put(self._pick(kind, view.turn, name), fact=label))
        if not parts:
            return None
        self._shrugs = 0
        return " ".join(parts)

    def _reply(self, heard: str) -> str | None:
        for number, reply in enumerate(self._offline.replies):
            spent = reply.times is not None and self._given[number] >= reply.times
            if heard and not spent and _matches(reply.to, heard):
                self._given[number] += 1
                self._shrugs = 0
                return reply.say
        return None

    def _assent(self, view: View, heard: str) -> str | None:
        if offers_choice(heard):
            # A cue that came outranks picking an option for the sake of picking one.
            phrases = () if self._cue_came else self._phrases.choose
        else:
            phrases = self._phrases.confirm if asks_confirmation(heard) else ()
        if not phrases:
            return None
        self._shrugs = 0
        if not self._wavered and phrases is self._phrases.confirm:
            self._wavered = self._comes_back = True
            return self._pick(self._phrases.wavers, view.turn, "wavers")
        self._comes_back = False
        return self._pick(phrases, view.turn, "assent")

    def _return(self, view: View) -> str | None:
        """Takes up the first request again after a first yes was taken back."""
        if not self._comes_back:
            return None
        self._comes_back, self._shrugs = False, 0
        first = self._offline.says[0].text if self._offline.says else view.script.demand
        return f"{self._pick(self._phrases.returns, view.turn, 'returns')} {first}"

    def _say(self, view: View, heard: str) -> str | None:
        says = self._offline.says
        if not self._greeted:
            self._greeted = True
            return self._pick(self._phrases.opens, view.turn, "opens")
        opening = not self._opened
        if opening:
            self._opened = True
            if not says:
                return self._with_more(view.script.demand, view.turn)
        if offers_more(heard):
            while self._next < len(says) and self._waits():
                self._advance()
                self._listen(heard)
        if self._next >= len(says) or self._waits():
            return None
        text = says[self._next].text
        self._advance()
        while self._phrases.bundles and self._next < len(says) and not self._waits():
            text = f"{text} {says[self._next].text}"
            self._advance()
        self._shrugs = 0
        return self._with_more(text, view.turn) if opening else text

    def _with_more(self, text: str, turn: int) -> str:
        return f"{text} {self._pick(self._phrases.adds, turn, 'adds')}" if self._phrases.adds else text

    def _press(self) -> str | None:
        if self._pressed >= len(self._phrases.presses):
            return None
        self._pressed += 1
        return self._phrases.presses[self._pressed - 1]

    def _shrug(self, view: View, heard: str) -> str | None:
        waits = self._next < len(self._offline.says)
        asked = asks_question(heard) and not offers_more(heard)
        if self._shrugs >= _MAX_SHRUGS_IN_A_ROW or not (waits or asked):
            return None
        self._shrugs += 1
        return self._pick(self._phrases.unsure, view.turn, "unsure")

    def _waits(self) -> bool:
        return self._offline.says[self._next].when is not None and not self._cue_came

    def _advance(self) -> None:
        self._next += 1
        self._cue_came = False

    def _colour(self, text: str, turn: int) -> str:
        # The labels are part of the draw: another one would change what every confused caller says.
        if not self._phrases.interject or self._pick((True, False), turn, "muddles"):
            return text
        return f"{self._pick(self._phrases.interject, turn, 'muddle')} {text}"

    def _pick(self, options: Sequence[_T], *what: object) -> _T:
        """One of the options, by seed and purpose: no generator whose state depends on earlier draws."""
        label = "/".join(map(str, (self._seed, *what)))
        return options[int.from_bytes(hashlib.sha256(label.encode()).digest()[:8]) % len(options)]


def _matches(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None


def _put(phrase: str, **places: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda place: places[place[1]], phrase)
