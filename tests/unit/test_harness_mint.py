"""What a launch mints is what its trust accepts; keys are rotated without a gap."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from redteam_harness.launch.mint import Mint, SigningKey
from redteam_sdk.context import Trust, verify
from redteam_sdk.errors import UntrustedContext, UsageError

if TYPE_CHECKING:
    from pathlib import Path

FORK: Any = SimpleNamespace(host="/run/forks", port=5432, name="rt_fork", password="not-known-to-anybody")


def mint(**options: Any) -> Mint:
    return Mint(tenant="clinic", run="7f3k", host="/run/forks", **options)


def test_token_is_accepted_by_its_own_launch_and_by_no_other() -> None:
    ours, other = mint(), mint()
    token = ours.token("c001", FORK, lifetime_s=60)
    context = verify(token, Trust.from_json(ours.trust))
    assert (context.tenant, context.run, context.conversation) == ("clinic", "7f3k", "c001")
    assert context.database == context.user == "rt_fork"
    with pytest.raises(UntrustedContext):
        verify(token, Trust.from_json(other.trust))


def test_each_service_has_its_own_audience() -> None:
    key = SigningKey.generate()
    desk, billing = mint(key=key, audience="front-desk"), mint(key=key, audience="billing")
    token = desk.token("c001", FORK, lifetime_s=60)
    assert verify(token, Trust.from_json(desk.trust)).conversation == "c001"
    with pytest.raises(UntrustedContext, match="another audience"):
        verify(token, Trust.from_json(billing.trust))


def test_keys_are_rotated_without_a_gap() -> None:
    old, new = SigningKey.generate(), SigningKey.generate()
    before, after = mint(key=old), mint(key=new)
    hour = timedelta(hours=1)
    both = {**before.trust, "keys": {**before.trust["keys"], **after.trust["keys"]}}
    moment = datetime.now(UTC)
    during = Trust.from_json({**both, "retired": {old.id: (moment + hour).isoformat()}})
    over = Trust.from_json({**both, "retired": {old.id: (moment - hour).isoformat()}})
    tokens = [each.token("c001", FORK, lifetime_s=60) for each in (before, after)]
    assert [verify(token, during).conversation for token in tokens] == ["c001", "c001"]
    assert verify(tokens[1], over).conversation == "c001"
    with pytest.raises(UntrustedContext, match="retired"):
        verify(tokens[0], over)


def test_longest_lifetime_is_within_what_is_accepted() -> None:
    ours = mint()
    context = verify(ours.token("c001", FORK, lifetime_s=10**7), Trust.from_json(ours.trust))
    assert timedelta(hours=23) < context.expires_at - context.not_before <= timedelta(hours=24)


def test_key_id_comes_from_the_key_and_no_secret_is_shown(tmp_path: Path) -> None:
    key = SigningKey.generate()
    path = written(tmp_path, key.private)
    assert SigningKey.load(path).id == key.id != SigningKey.generate().id
    assert jwt.get_unverified_header(mint(key=key).token("c001", FORK, lifetime_s=9))["kid"] == key.id
    assert repr(key) == "SigningKey()"
    assert "PRIVATE" not in str(mint(key=key).trust)


def test_key_file_that_is_no_key_or_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        SigningKey.load(tmp_path / "gone.pem")
    path = written(tmp_path, SigningKey.generate().private)
    for mode in (0o644, 0o640, 0o604):
        path.chmod(mode)
        with pytest.raises(UsageError, match="chmod 600"):
            SigningKey.load(path)
    for content in (b"", b"no PEM", path.read_bytes()[:60]):
        path.chmod(0o600)
        path.write_bytes(content)
        with pytest.raises(UsageError, match="not an unencrypted Ed25519"):
            SigningKey.load(path)
    with pytest.raises(UsageError, match="not an unencrypted Ed25519"):
        SigningKey.load(written(tmp_path, generate_private_key(SECP256R1())))


def written(folder: Path, key: Any) -> Path:
    path = folder / "signing.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    return path


def test_key_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "new" / "signing.pem"
    made = SigningKey.load_or_make(path)
    assert path.stat().st_mode & 0o077 == 0
    assert SigningKey.load_or_make(path).id == made.id == SigningKey.load(path).id
    assert [entry.name for entry in path.parent.iterdir()] == ["signing.pem"]
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        SigningKey.load_or_make(tmp_path / "file" / "signing.pem")


def test_tokens_name_the_collector_that_the_trust_allows() -> None:
    reporting = mint(collector="http://127.0.0.1:4318", collectors=["http://127.0.0.1"])
    token = reporting.token("c001", FORK, lifetime_s=60)
    assert verify(token, Trust.from_json(reporting.trust)).collector == "http://127.0.0.1:4318"
    plain = mint()
    assert verify(plain.token("c001", FORK, lifetime_s=60), Trust.from_json(plain.trust)).collector is None
