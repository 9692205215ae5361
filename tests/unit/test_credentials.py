"""Credentials that an option and the environment both give."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pyrmq import ConfigError, Credentials, Producer
from pyrmq._client.security.effective import native_security
from pyrmq.remoting import Client
from tests.secret_search import planted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def test_credentials_of_an_option_that_contradict_the_environment_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def written(file: str, user: str, secret: str) -> Path:
        path = planted(tmp_path / f"{file}.json")
        path.touch(mode=0o600)
        path.write_text(json.dumps({"accessKey": user, "secretKey": secret}))
        return path

    named, equal = (written(name, "alice", "alice-s3cret") for name in ("alice", "copy"))
    other, rotated = written("bob", "bob", "bob-s3cret"), written("new", "alice", "newer-s3cret")
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(named))
    link = tmp_path / "link.json"
    link.symlink_to(named)
    files = [Credentials.from_file(path) for path in (named, link, equal)]
    by_hand = Credentials("alice", "alice-s3cret")
    for same in (None, Credentials.from_environment(), by_hand, *files):
        Client(credentials=same).close()
    assert caplog.records == []
    makers: tuple[Callable[..., object], ...] = (
        Client,
        partial(Producer, name_server="127.0.0.1:1"),
    )
    for wrong, texts in (
        (Credentials.from_file(other), ("the user 'bob' from", str(other), "the user 'alice'")),
        (Credentials.from_file(rotated), (str(rotated), "has another secret of that user")),
        (Credentials("carol", "carols-s3cret"), ("the user 'carol', and",)),
    ):
        for make in makers:
            with pytest.raises(ConfigError, match="given twice and differ") as raised:
                make(credentials=wrong)
            said = str(raised.value)
            assert said.endswith("unset PYRMQ_CREDENTIALS, or leave out the option")
            assert f"`{named}`, which the environment variable PYRMQ_CREDENTIALS names" in said
            assert all(text in said for text in texts), said
            assert "s3cret" not in said
    # One user's file that was changed since its option was read: the rotation of a secret.
    written("alice", "alice", "newest-s3cret")
    for same in files[:2]:
        Client(credentials=same).close()
    monkeypatch.setenv("PYRMQ_CREDENTIALS", f"{named}.missing")
    with pytest.raises(ConfigError, match=r"missing`, which PYRMQ_CREDENTIALS names"):
        Client(credentials=by_hand)


def test_what_was_read_from_the_environment_stays_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = planted(tmp_path / "alice.json")
    path.touch(mode=0o600)
    path.write_text(json.dumps({"accessKey": "alice", "secretKey": "alice-s3cret"}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYRMQ_CREDENTIALS", "alice.json")
    read, by_hand = Credentials.from_environment(), Credentials("alice", "alice-s3cret")
    Client(credentials=by_hand).close()
    # A daemon changes to the root, and the file may go: a consumer makes clients hours later.
    monkeypatch.chdir("/")
    path.unlink()
    for same in (read, by_hand):
        Client(credentials=same).close()
    with pytest.raises(ConfigError, match=r"alice\.json`, which PYRMQ_CREDENTIALS names"):
        Client(credentials=Credentials("alice", "alice-s3cret"))


def test_equal_credentials_have_the_tls_of_the_environment_s_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = planted(tmp_path / "alice.json")
    path.touch(mode=0o600)
    user = {"accessKey": "alice", "secretKey": "alice-s3cret"}
    path.write_text(json.dumps(user | {"tls": {"verify": False}}))
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(path))
    assert native_security(None, None)["tls"] is not None
    assert native_security(Credentials("alice", "alice-s3cret"), None)["tls"] is not None
