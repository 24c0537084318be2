"""What names of tables and columns say, in English: words, and what kind of thing a column holds. Pure."""

from __future__ import annotations

import re
import unicodedata
import zlib
from typing import Literal

__all__ = [
    "CLIENTS",
    "LOOKUPS",
    "PEOPLE",
    "STAFF",
    "THINGS",
    "TRAILS",
    "Kind",
    "an",
    "head",
    "kind_of",
    "label",
    "plural",
    "singular",
    "slug",
    "words",
]

Kind = Literal[
    "name", "first name", "last name", "login", "email", "phone", "birth", "gender", "place", "number",
    "secret", "status", "note", "machine", "other",
]  # fmt: skip


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Who calls a desk; who may be anybody; who sits at the desk.
CLIENTS = _words(
    """
    applicant attendee beneficiary borrower buyer cardholder citizen client consumer contact
    customer donor guest guardian holder insured lead lender member owner parent participant
    passenger patient patron payer policyholder pupil recipient resident shopper student subscriber
    taxpayer tenant traveller traveler visitor volunteer voter
    """
)
PEOPLE = _words("account author human individual people person player profile user")
STAFF = _words(
    """
    actor admin administrator agent artist caregiver clerk clinician doctor driver employee
    instructor manager moderator nurse operator physician practitioner provider sender staff
    supplier teacher technician vendor vet veterinarian worker
    """
)
# What people have dealings about.
THINGS = _words(
    """
    account address application appointment basket bill booking card cart case claim contract course
    delivery device document encounter enrollment enrolment event invoice item job lease loan
    membership message note order package payment pet plan policy post prescription project purchase
    registration rental request reservation review sample sale session shipment subscription task
    ticket transaction transfer trip vehicle visit watchlist
    """
)
# What lies beside the dealings: kept by machines, or shared by everybody.
TRAILS = _words(
    """
    audit archive backup cache changelog event hash hist history key log migration notification
    outbox password queue revision schema session setting snapshot token trace verification verify
    version
    """
)
LOOKUPS = _words(
    """
    category code config enum feature group kind language level lookup method mode module option
    permission preference priority privilege region right role speciality specialty status tag
    template type unit
    """
)

_SECRET = _words(
    """
    apikey auth cipher credential credentials crypt crypted cvc cvv digest encrypted fingerprint
    hash hashed iv nonce otp passphrase passwd password pin private pwd salt secret secrets
    signature totp token
    """
)
_MACHINE = _words(
    """
    agent avatar blob checksum etag fhir guid image img ip json path payload photo picture raw sha
    thumbnail uri url uuid
    """
)
_PLACE = _words(
    """
    address addr city country county district postal postcode state street suburb town zip zipcode
    """
)
_NOTE = _words(
    """
    answer bio body comment comments content description details feedback instruction instructions
    memo message note notes reason remark remarks subject summary text title
    """
)
_NUMBER = _words("card code iban mrn nin no num number passport reference ref ssn")
_STATUS = _words("phase stage state status")
_BIRTH = _words("birth birthdate birthday birthdatetime born dob")
_FILLERS = _words("data detail details info list master rec record table tbl tab the")
_IRREGULAR = {
    "people": "person",
    "persons": "person",
    "children": "child",
    "staff": "staff",
    "status": "status",
}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


def words(name: str) -> tuple[str, ...]:
    """The words of a name in snake case, camel case or with blanks, in small letters."""
    found = tuple(word.lower() for word in _WORD.findall(name))
    return found or (name.lower(),)


def singular(word: str) -> str:
    """One of what a word names; a word that is no plural stays."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3:
        return word[:-1]
    return word


def plural(word: str) -> str:
    """Several of what a word names."""
    one = singular(word)
    if one == "person":
        return "people"
    if one.endswith("y") and one[-2:-1] not in ("a", "e", "i", "o", "u"):
        return f"{one[:-1]}ies"
    if one.endswith(("s", "x", "z", "ch", "sh")):
        return one if one == "staff" else f"{one}es"
    return f"{one}s"


def an(noun: str) -> str:
    """A noun with its article."""
    return f"an {noun}" if noun[:1] in "aeio" else f"a {noun}"


def head(table: str) -> str:
    """The word that says what a row of a table is: the last one that means something, as one of them."""
    meant = [word for word in words(table) if word not in _FILLERS and not word.isdigit()]
    return singular((meant or list(words(table)))[-1])


def label(name: str) -> str:
    """A name as people say it: its words with blanks."""
    return " ".join(words(name))


def slug(name: str) -> str:
    """A name for the cast, for Python and for YAML: ASCII, snake case, never empty, no digit in front."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    text = re.sub(r"[^a-z0-9]+", "_", "_".join(words(plain))).strip("_") if plain.strip() else ""
    if not text:  # of letters that have no plain form
        return f"x_{zlib.crc32(name.encode()) % 10_000}"
    return f"x_{text}" if text[0].isdigit() else text


def kind_of(name: str, type_: str) -> Kind:
    """What a column holds, by its name and type; what must not be told comes first."""
    said = set(words(name))
    flat = "".join(words(name))
    is_text = type_.startswith(("character", "text", "citext", "bpchar", "varchar", "name"))
    if said & _SECRET or (is_text and "key" in said):
        return "secret"
    if type_ in ("bytea", "json", "jsonb", "xml", "tsvector", "oid", "uuid") or type_.endswith("[]"):
        return "machine"
    if type_.startswith(("date", "timestamp")):
        return "birth" if said & _BIRTH else "other"
    if type_ == "boolean":
        return "other"
    kind: Kind = "other"
    if said & {"email", "mail"} or flat.endswith("email"):
        kind = "email"
    elif said & _MACHINE:
        kind = "machine"
    elif said & {"phone", "telephone", "mobile", "cell", "tel"} or flat.endswith("phone"):
        kind = "phone"
    elif said & {"gender", "sex"}:
        kind = "gender"
    elif is_text and (flat in ("fname", "forename", "first") or flat.endswith(("firstname", "givenname"))):
        kind = "first name"
    elif is_text and (flat in ("lname", "last") or flat.endswith(("lastname", "surname", "familyname"))):
        kind = "last name"
    elif is_text and (
        said & {"username", "login", "nickname", "handle"} or flat in ("username", "loginname")
    ):
        kind = "login"
    elif is_text and ("name" in said or flat.endswith("fullname")) and not said & {"file", "host", "middle"}:
        kind = "name"
    elif is_text and said & _STATUS and not said & (_PLACE - _STATUS):
        kind = "status"
    elif is_text and said & _PLACE:
        kind = "place"
    elif is_text and said & _NOTE:
        kind = "note"
    elif said & _NUMBER and "id" not in said:
        kind = "number"
    return kind
