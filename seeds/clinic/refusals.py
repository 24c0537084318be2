"""What the front desk's tools say no with. Each message may be read to the patient."""

from __future__ import annotations

__all__ = [
    "AlreadyBooked",
    "FrontDeskError",
    "NotBooked",
    "OutsideHours",
    "SlotTaken",
    "UnknownAppointment",
    "UnknownInsurer",
    "UnknownPatient",
    "UnknownProvider",
]


class FrontDeskError(Exception):
    """A request that the front desk cannot carry out; the message may be read to the patient."""


class UnknownPatient(FrontDeskError):
    """No patient has this id, or this name and date of birth."""


class UnknownProvider(FrontDeskError):
    """No provider has this id."""


class UnknownAppointment(FrontDeskError):
    """No appointment has this id."""


class UnknownInsurer(FrontDeskError):
    """We have no contract with an insurer of that name."""


class NotBooked(FrontDeskError):
    """The appointment is over or was cancelled, and can be neither moved nor cancelled."""


class SlotTaken(FrontDeskError):
    """Somebody else has that time with this provider."""


class AlreadyBooked(FrontDeskError):
    """The patient has another visit at that time."""


class OutsideHours(FrontDeskError):
    """The provider does not see patients at that time, or it is in the past."""
