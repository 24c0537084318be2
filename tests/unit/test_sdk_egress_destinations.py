"""Which destinations are allowed: spellings of names and addresses, and what a look-up allows for a while."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redteam_sdk.egress.destinations import Destination, Destinations, normal, parse_destination
from redteam_sdk.errors import UsageError

ANY = "0.0.0.0"  # noqa: S104 - nothing is bound to it


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("api.example.com", "api.example.com", None),
        ("API.Example.COM.:443", "api.example.com", 443),
        ("127.0.0.1:8080", "127.0.0.1", 8080),
        ("::1", "::1", None),
        ("[2001:DB8::1]:5432", "2001:db8::1", 5432),
        ("[::ffff:10.0.0.1]:1", "10.0.0.1", 1),
        ("bücher.example:65535", "xn--bcher-kva.example", 65535),
        ("redis_cache", "redis_cache", None),
        ("/run/forks/", "/run/forks", None),
    ],
)
def test_destination_is_read_in_every_form_that_people_write(text: str, host: str, port: int | None) -> None:
    assert parse_destination(text) == Destination(host, port)


@pytest.mark.parametrize(
    "text",
    [
        *("", ":443", "https://api.example.com", "*.example.com", "a b", "host:0", "host:65536", "host:x"),
        *("host:", "[name]:1", "[::1", "[::1]:", "::1]:5", "a/b", "a\n", "host:1:2", "-a", "a..b", "host:٣"),
    ],
)
def test_what_is_no_destination_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="is no destination: write host, host:port"):
        parse_destination(text)


def test_nothing_is_allowed_that_was_not_said() -> None:
    nothing = Destinations()
    for host in (
        "127.0.0.1",
        "::1",
        "",
        ANY,
        "169.254.169.254",
        "10.0.0.1",
        "localhost",
        "example.com",
    ):
        assert not nothing.may_connect(host, 443)
    assert not nothing.may_open("/run/forks/.s.PGSQL.5432")
    assert not nothing.may_look_up("example.com")
    assert not nothing.may_look_back("192.0.2.1")


@pytest.mark.parametrize(
    "spelling", ["10.1.2.3", "::ffff:10.1.2.3", "::FFFF:0a01:0203"], ids=["v4", "mapped", "mapped-hex"]
)
def test_address_is_allowed_in_every_spelling_and_at_its_port_only(spelling: str) -> None:
    allowed = Destinations(["10.1.2.3:5432"])
    assert allowed.may_connect(spelling, 5432)
    assert not allowed.may_connect(spelling, 5433)


@pytest.mark.parametrize(
    "odd", ["10.66051", "0xa.1.2.3", "167837955", "012.1.2.3", "10.1.2.3 ", "10.1.2.3\0"]
)
def test_address_in_an_odd_spelling_is_not_taken_for_the_one_that_is_allowed(odd: str) -> None:
    assert not Destinations(["10.1.2.3"]).may_connect(odd, 80)


def test_any_address_is_this_machine_and_allowed_as_such_only() -> None:
    assert not Destinations([ANY]).may_connect(ANY, 80)
    assert Destinations(["127.0.0.1:80"]).may_connect(ANY, 80)
    assert Destinations(["localhost:80"]).may_connect("::", 80)


def test_name_is_allowed_itself_and_not_the_names_around_it() -> None:
    allowed = Destinations(["api.example.com:443"])
    for name in ("api.example.com", "API.example.com", "api.example.com."):
        assert allowed.may_look_up(name)
        assert allowed.may_connect(name, 443)
    for name in ("example.com", "x.api.example.com", "api.example.com.evil.test", "xapi.example.com"):
        assert not allowed.may_look_up(name)
        assert not allowed.may_connect(name, 443)
    assert not allowed.may_connect("api.example.com", 80)


def test_addresses_of_an_allowed_name_are_allowed_once_it_was_looked_up_and_for_a_while() -> None:
    now = [1000.0]
    allowed = Destinations(["api.example.com:443"], clock=lambda: now[0])
    assert not allowed.may_connect("192.0.2.7", 443)
    allowed.learn("api.example.com", ["192.0.2.7", "2001:db8::7"])
    allowed.learn("other.example.com", ["192.0.2.8"])
    assert allowed.may_connect("192.0.2.7", 443)
    assert allowed.may_connect("2001:DB8:0::7", 443)
    assert not allowed.may_connect("192.0.2.7", 80)
    assert not allowed.may_connect("192.0.2.8", 443)
    now[0] += 299
    assert allowed.may_connect("192.0.2.7", 443)
    allowed.learn("api.example.com", ["192.0.2.9"])
    now[0] += 2
    assert not allowed.may_connect("192.0.2.7", 443)
    assert allowed.may_connect("192.0.2.9", 443)


def test_allowed_name_that_leads_to_the_metadata_service_opens_no_way_to_it() -> None:
    allowed = Destinations(["api.example.com"])
    allowed.learn(
        "api.example.com", ["169.254.169.254", "::ffff:169.254.169.254", "fe80::1%eth0", "224.0.0.1"]
    )
    for address in ("169.254.169.254", "fe80::1", "224.0.0.1"):
        assert not allowed.may_connect(address, 80)
    assert Destinations(["169.254.169.254:80"]).may_connect("169.254.169.254", 80)


def test_unix_sockets_are_allowed_by_path_or_by_their_directory_and_not_below() -> None:
    allowed = Destinations(["/run/a/socket", "/run/forks"])
    assert allowed.may_open("/run/a/socket")
    assert allowed.may_open("/run/forks/.s.PGSQL.5432")
    for path in ("/run/a/other", "/run/forks/deeper/socket", "/run/forks-of-others/s", "\0abstract", "s", ""):
        assert not allowed.may_open(path)


@given(st.text())
def test_normal_form_is_its_own_normal_form_and_no_text_breaks_it(text: str) -> None:
    assert normal(normal(text)) == normal(text)
    assert not Destinations(["api.example.com"]).may_connect(text, 1) or normal(text) == "api.example.com"
