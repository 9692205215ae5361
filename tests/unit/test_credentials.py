"""Credentials that an option and the environment both give."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pyrmq import ConfigError, Credentials, Producer
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
