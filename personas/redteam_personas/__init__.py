"""Personas: a cast of rows, dispositions, scripts and the actors that speak them.

A persona is a row of the tenant's data plus a disposition. What it may tell is revealed by rule, outside
the actor: a held-back value is never in what an actor is given. Actors are a model (`SpokenActor`) or, to
check the harness without one, a script (`ScriptedActor`). This room knows Postgres only through the
connection that it is handed, and no model client at all.
"""

from __future__ import annotations

from redteam_personas.actor import Actor, ActorFault, Brief, Line, Refusal, Taken, View, take_line, view_of
from redteam_personas.cast import Cast, CastSpec, DispositionName, draw_cast
from redteam_personas.discipline import FaultKind
from redteam_personas.disposition import Disposition, load_dispositions
from redteam_personas.leaks import find_leaks
from redteam_personas.offline import Offline, OfflineSpec, check_offline
from redteam_personas.others import Others
from redteam_personas.persona import Fact, FactSpec, Persona, Reveal
from redteam_personas.reveal import Heard, RevealState, hear, held_facts
from redteam_personas.script import CaseParts, Script, build_script, check_case
from redteam_personas.scripted import ScriptedActor
from redteam_personas.spoken import LineModel, SpokenActor, prompt_digest
from redteam_personas.sqlcheck import check_condition, check_select

__all__ = [
    "Actor",
    "ActorFault",
    "Brief",
    "CaseParts",
    "Cast",
    "CastSpec",
    "Disposition",
    "DispositionName",
    "Fact",
    "FactSpec",
    "FaultKind",
    "Heard",
    "Line",
    "LineModel",
    "Offline",
    "OfflineSpec",
    "Others",
    "Persona",
    "Refusal",
    "Reveal",
    "RevealState",
    "Script",
    "ScriptedActor",
    "SpokenActor",
    "Taken",
    "View",
    "build_script",
    "check_case",
    "check_condition",
    "check_offline",
    "check_select",
    "draw_cast",
    "find_leaks",
    "hear",
    "held_facts",
    "load_dispositions",
    "prompt_digest",
    "take_line",
    "view_of",
]
