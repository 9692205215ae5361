"""Credentials whose secret lies in the system's keyring."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.backends.fail import Keyring as NoKeyring

from pyrmq import ConfigError, Credentials
from pyrmq._client.security.effective import shared_credentials

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRET = "secret-of-the-keyring-4471"


class InMemory(KeyringBackend):
    """A keyring that needs no desktop."""

    priority: ClassVar[float] = 1
    kept: ClassVar[dict[tuple[str, str], str]] = {}

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def get_password(self, service: str, username: str) -> str | None:
        """Return what was set."""
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        """Keep."""
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        """Forget."""
        del self.kept[service, username]


@pytest.fixture(autouse=True)
def backend() -> Iterator[None]:
    before = keyring.get_keyring()
    keyring.set_keyring(InMemory())
    keyring.set_password("rocketmq/eu", "alice", SECRET)
    yield
    InMemory.kept.clear()
    keyring.set_keyring(before)


def test_a_secret_of_the_keyring_is_used_and_nowhere_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    credentials = Credentials.from_keyring("rocketmq/eu", "alice")
    assert repr(credentials) == "Credentials(access_key='alice')"
    assert SECRET not in repr(vars(Credentials))
    monkeypatch.setenv("PYRMQ_CREDENTIALS", "keyring:rocketmq/eu/alice")
    found = Credentials.from_environment()
    assert found is not None
    assert found.access_key == "alice"


def test_clients_share_one_object_until_the_secret_changes() -> None:
    first = shared_credentials("keyring:rocketmq/eu/alice")
    assert shared_credentials("keyring:rocketmq/eu/alice") is first
    keyring.set_password("rocketmq/eu", "alice", SECRET + "-rotated")
    assert shared_credentials("keyring:rocketmq/eu/alice") is not first


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("keyring:rocketmq/eu/bob", "no secret for service 'rocketmq/eu', user 'bob'"),
        ("keyring:alice", "must be `keyring:SERVICE/USER`"),
        ("keyring:/alice", "must be `keyring:SERVICE/USER`"),
        ("keyring:rocketmq/", "must be `keyring:SERVICE/USER`"),
    ],
)
def test_a_wrong_name_says_what_to_do(
    source: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=text):
        shared_credentials(source)
    monkeypatch.setenv("PYRMQ_CREDENTIALS", source)
    with pytest.raises(ConfigError, match=text):
        Credentials.from_environment()


def test_a_machine_without_a_keyring_says_so() -> None:
    keyring.set_keyring(NoKeyring())
    with pytest.raises(ConfigError, match="NoKeyringError of Keyring; `keyring diagnose`"):
        Credentials.from_keyring("rocketmq/eu", "alice")


def test_without_the_package_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ConfigError, match=r"pip install 'pyrmq-rocketmq\[keyring\]'"):
        Credentials.from_keyring("rocketmq/eu", "alice")
