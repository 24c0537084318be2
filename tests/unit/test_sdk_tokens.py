"""Mutated tokens by the thousand: none is accepted, whatever is changed and however it is signed.

`REDTEAM_TOKENS=100000` in the environment tries that many; every run of the suite tries some thousand. Long
because each way to change a token is a function of its own.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import random
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from support.sdk import AUDIENCE, ISSUER, KID, Minter, armed, context_for

from redteam_sdk.claims import to_claims
from redteam_sdk.context import bind, verify
from redteam_sdk.errors import ContextError, InvalidContext
from redteam_sdk.verify import check

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from redteam_sdk.context import Context

COUNT = int(os.environ.get("REDTEAM_TOKENS", "4000"))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# The order of Ed25519's group: a signature's second half plus this is another spelling of the same number.
ORDER = 2**252 + 27742317777372353535851937790883648493

OURS, THEIRS = Minter(), Minter()
GIVEN = context_for(host="/run/forks")
OTHER = context_for(host="/run/forks", tenant="t2", conversation="c002", database="rt_other")
TOKEN, OTHER_TOKEN = OURS.mint(GIVEN), OURS.mint(OTHER)
TRUST = OURS.trust("/run/forks")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def signed(header: object, payload: object, minter: Minter = OURS) -> str:
    """Any header over any payload, well and truly signed."""
    first = b64(header if isinstance(header, bytes) else json.dumps(header).encode())
    second = b64(payload if isinstance(payload, bytes) else json.dumps(payload).encode())
    return f"{first}.{second}.{b64(minter.key.sign(f'{first}.{second}'.encode()))}"


def claims(context: Context = GIVEN, **change: Any) -> dict[str, Any]:
    return {**to_claims(context, issuer=ISSUER, audience=AUDIENCE), **change}


HEADER = {"alg": "EdDSA", "kid": KID, "typ": "JWT"}


def flip_one_bit(pick: random.Random) -> object:
    at = pick.randrange(len(TOKEN))
    return TOKEN[:at] + chr(ord(TOKEN[at]) ^ (1 << pick.randrange(7))) + TOKEN[at + 1 :]


def flip_bits_of_what_is_encoded(pick: random.Random) -> object:
    parts = TOKEN.split(".")
    which = pick.randrange(3)
    data = bytearray(unb64(parts[which]))
    for at in pick.sample(range(len(data)), pick.randint(1, 8)):
        data[at] ^= 1 << pick.randrange(8)
    parts[which] = b64(bytes(data))
    return ".".join(parts)


def truncate(pick: random.Random) -> object:
    start, end = sorted(pick.sample(range(len(TOKEN) + 1), 2))
    return TOKEN[start:end] if (start, end) != (0, len(TOKEN)) else ""


def cut_out(pick: random.Random) -> object:
    at = pick.randrange(len(TOKEN))
    return TOKEN[:at] + TOKEN[at + pick.randint(1, 5) :]


def insert(pick: random.Random) -> object:
    at = pick.randrange(len(TOKEN) + 1)
    return TOKEN[:at] + "".join(pick.choices(ALPHABET + ".", k=pick.randint(1, 4))) + TOKEN[at:]


def rearrange(pick: random.Random) -> object:
    parts = TOKEN.split(".") + OTHER_TOKEN.split(".")
    made = ".".join(pick.choices(parts, k=pick.choice([2, 3, 3, 3, 4, 5])))
    return made if made not in (TOKEN, OTHER_TOKEN) else ""


def graft_a_signature(pick: random.Random) -> object:
    """Replayed for another conversation: the claims of one token under the signature of another."""
    a, b = pick.sample([TOKEN, OTHER_TOKEN], 2)
    return a.rpartition(".")[0] + "." + b.rpartition(".")[2]


def swap_a_claim(pick: random.Random) -> object:
    """Another tenant's, conversation's or fork's fact, under the old signature."""
    facts = claims()
    name = pick.choice(sorted(facts["redteam"]))
    facts["redteam"][name] = claims(OTHER)["redteam"][name] if pick.random() < 0.5 else pick.choice(ODD)
    if facts == claims():
        facts["jti"] = "another"
    head, _, signature = TOKEN.split(".")
    return f"{head}.{b64(json.dumps(facts).encode())}.{signature}"


ODD: list[Any] = [
    "",
    None,
    0,
    -1,
    True,
    1.5,
    [],
    {},
    "c\n1",
    "a,b",
    "x" * 300,
    "\ud800",
    "é" * 40,
    ["c001"],
    10**30,
]


def odd_fact_that_we_signed(pick: random.Random) -> object:
    facts = claims()
    name = pick.choice([name for name in sorted(facts["redteam"]) if name != "version"])
    odd = pick.choice([value for value in ODD if not (name == "password" and value in ("a,b", "é" * 40))])
    if isinstance(odd, str) and 0 < len(odd) < 256 and odd.isprintable() and name not in ("host", "port"):
        odd = ""  # a strange name is still a name
    facts["redteam"][name] = odd
    return signed(HEADER, facts)


def another_algorithm(pick: random.Random) -> object:
    name = pick.choice(
        [
            "none",
            "None",
            "NONE",
            "",
            "HS256",
            "HS512",
            "RS256",
            "ES256",
            "PS256",
            "eddsa",
            "EdDSA ",
            "Ed25519",
        ]
    )
    header = {**HEADER, "alg": pick.choice([name, [name], None, {"alg": name}, 0])}
    if pick.random() < 0.3:
        return signed(header, claims())
    unsigned = f"{b64(json.dumps(header).encode())}.{b64(json.dumps(claims()).encode())}"
    public = OURS.key.public_key()
    secret = pick.choice(
        [
            OURS.public_pem().encode(),
            public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
            public.public_bytes(Encoding.Raw, PublicFormat.Raw),
            b"",
        ]
    )
    digest = pick.choice([hashlib.sha256, hashlib.sha384, hashlib.sha512])
    mac = hmac.new(secret, unsigned.encode(), digest).digest()
    return f"{unsigned}.{pick.choice(['', b64(mac), b64(mac.ljust(64, bytes(1))[:64]), 'A' * 86])}"


def wrong_key(pick: random.Random) -> object:
    return THEIRS.mint(
        pick.choice([GIVEN, OTHER]), headers={"kid": pick.choice([KID, "key-2", "", "../key"])}
    )


def header_that_brings_its_own_key(pick: random.Random) -> object:
    raw = THEIRS.key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    extra: Mapping[str, Any] = pick.choice(
        [
            {"jwk": {"kty": "OKP", "crv": "Ed25519", "x": b64(raw)}},
            {"jku": "https://attacker.example/keys"},
            {"x5u": "https://attacker.example/chain"},
            {"x5c": [base64.b64encode(raw).decode()]},
            {"x5t": b64(hashlib.sha1(raw).digest())},  # noqa: S324 - what the header's name means
            {"crit": ["exp"]},
            {"crit": ["b64"], "b64": False},
            {"b64": False},
            {"zip": "DEF"},
            {"cty": "JWT"},
            {"enc": "A256GCM"},
            {"typ": "at+jwt"},
            {"typ": None},
            {"kid": [KID]},
            {"kid": {KID: KID}},
            {"kid": None},
            {"kid": f"{KID}\0"},
        ]
    )
    return signed({**HEADER, **extra}, claims(), pick.choice([OURS, THEIRS]))


def header_that_says_it_twice(pick: random.Random) -> object:
    alg = pick.choice(["none", "HS256"])
    text = f'{{"alg": "{alg}", "kid": "{KID}", "alg": "EdDSA"}}'
    return signed(text.encode(), claims(), THEIRS)


def another_audience(pick: random.Random) -> object:
    odd = [
        "billing",
        f"{AUDIENCE} ",
        AUDIENCE.upper(),
        AUDIENCE[:-1],
        [AUDIENCE],
        [AUDIENCE, "x"],
        [],
        "",
        None,
    ]
    return OURS.mint(GIVEN, aud=pick.choice([value for value in odd if value is not None]))


def another_issuer(pick: random.Random) -> object:
    return OURS.mint(GIVEN, iss=pick.choice(["somebody", f"{ISSUER}/", [ISSUER], "", 7]))


def expired(pick: random.Random) -> object:
    over = GIVEN.not_before - timedelta(seconds=pick.randint(6, 10**7))
    return OURS.mint(GIVEN, nbf=int(over.timestamp()) - 60, exp=int(over.timestamp()))


def future(pick: random.Random) -> object:
    start = GIVEN.not_before + timedelta(seconds=pick.randint(600, 10**7))
    return OURS.mint(GIVEN, nbf=int(start.timestamp()), exp=int(start.timestamp()) + 60)


def time_that_is_none(pick: random.Random) -> object:
    odd = ["", "0", None, 1e300, -1, True, [], {}, 10**400, claims()["exp"] + 0.5, claims()["exp"] + 10**6]
    name = pick.choice(["exp", "nbf"])
    value = pick.choice(odd if name == "exp" else odd[:-1])
    return OURS.mint(GIVEN, **{name: value})


def claim_too_many_or_too_few(pick: random.Random) -> object:
    facts = claims()
    if pick.random() < 0.5:
        del facts[pick.choice(sorted(facts))]
    else:
        facts[pick.choice(["sub", "iat", "scope", "admin", "redteam2", "cnf"])] = pick.choice(
            [1, "x", [], {}]
        )
    return signed(HEADER, facts)


def nested(pick: random.Random) -> object:
    return pick.choice(
        [
            signed({**HEADER, "cty": "JWT"}, TOKEN.encode()),
            signed(HEADER, TOKEN.encode()),
            signed(HEADER, json.dumps(TOKEN).encode()),
            signed(HEADER, claims(redteam=TOKEN)),
            signed(HEADER, [claims()]),
            signed(HEADER, b"[" * 2000),
            json.dumps(dict(zip(("protected", "payload", "signature"), TOKEN.split("."), strict=True))),
            b64(TOKEN.encode()),
        ]
    )


def unicode_trick(pick: random.Random) -> object:
    at = pick.randrange(len(TOKEN))
    here = TOKEN[at]
    wide = chr(ord(here) + 0xFEE0)
    return pick.choice(
        [
            TOKEN[:at] + wide + TOKEN[at + 1 :],
            TOKEN[:at] + pick.choice("\u200b\u200d\u00ad\ufeff\u2060\0\n\r\t \u0301\ud800") + TOKEN[at:],
            TOKEN.replace(".", pick.choice("\u3002\uff0e\u2024\u0701")),
            TOKEN + pick.choice("\n\0 \ufeff"),
            pick.choice("\ufeff\u202e \n") + TOKEN,
            TOKEN.encode("utf-16").decode("latin-1"),
            "".join(f"%{ord(character):02x}" for character in TOKEN),
        ]
    )


def padding(pick: random.Random) -> object:
    parts = TOKEN.split(".")
    which = pick.randrange(3)
    if pick.random() < 0.5:
        parts[which] += "=" * pick.randint(1, 3)
    else:
        # The last character of a segment may carry bits that decode to nothing.
        last = ALPHABET.index(parts[which][-1])
        spare = {2: 4, 3: 2}.get(len(parts[which]) % 4, 0)
        if not spare:
            return TOKEN + "="
        parts[which] = parts[which][:-1] + ALPHABET[last ^ pick.randrange(1, 1 << spare)]
    return ".".join(parts)


def signature_in_another_spelling(pick: random.Random) -> object:
    head, _, text = TOKEN.rpartition(".")
    signature = unb64(text)
    number = int.from_bytes(signature[32:], "little")
    made = pick.choice(
        [
            signature[:32] + (number + ORDER).to_bytes(32, "little"),
            signature[:32] + ((number * pick.randrange(2, 9)) % ORDER).to_bytes(32, "little"),
            bytes(64),
            bytes([1]) + bytes(63),
            signature[32:] + signature[:32],
            pick.randbytes(64),
        ]
    )
    return f"{head}.{b64(made)}"


def another_thing(pick: random.Random) -> object:
    return pick.choice(
        [
            TOKEN.encode(),
            [TOKEN],
            (TOKEN,),
            {TOKEN: TOKEN},
            None,
            0,
            True,
            f"Bearer {TOKEN}",
            f"{TOKEN}, {TOKEN}",
        ]
    )


def elsewhere(pick: random.Random) -> object:
    host = pick.choice(
        ["production.example", "/run/forks/", "/run/fork", "/run/forks2", "127.0.0.1", "/RUN/FORKS"]
    )
    return OURS.mint(replace(GIVEN, host=host))


MUTATIONS: list[Callable[[random.Random], object]] = [
    flip_one_bit,
    flip_bits_of_what_is_encoded,
    truncate,
    cut_out,
    insert,
    rearrange,
    graft_a_signature,
    swap_a_claim,
    odd_fact_that_we_signed,
    another_algorithm,
    wrong_key,
    header_that_brings_its_own_key,
    header_that_says_it_twice,
    another_audience,
    another_issuer,
    expired,
    future,
    time_that_is_none,
    claim_too_many_or_too_few,
    nested,
    unicode_trick,
    padding,
    signature_in_another_spelling,
    another_thing,
    elsewhere,
]


EACH, REST = divmod(COUNT, len(MUTATIONS))
SHARES = [(make, EACH + (at < REST)) for at, make in enumerate(MUTATIONS)]


@pytest.mark.timeout(0 if COUNT > 4000 else 60)
@pytest.mark.parametrize(("make", "count"), SHARES, ids=lambda value: getattr(value, "__name__", None))
def test_no_mutated_token_is_accepted(make: Callable[[random.Random], object], count: int) -> None:
    pick = random.Random(make.__name__)
    assert verify(TOKEN, TRUST) == GIVEN  # the ones that were not touched are
    assert verify(OTHER_TOKEN, TRUST) == OTHER
    for number in range(count):
        token = make(pick)
        refusal = check(token, TRUST)
        assert isinstance(refusal, ContextError), f"{make.__name__} {number} was accepted: {token!r}"
        assert TOKEN not in str(refusal)


def test_token_is_not_replayed_inside_another_conversation() -> None:
    with armed(OURS, "/run/forks"), bind(OTHER_TOKEN), pytest.raises(InvalidContext), bind(TOKEN):
        pytest.fail("the block ran")
