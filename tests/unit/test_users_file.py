"""Changes of the file of users that meet: by commands, and by a server."""

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING

import pytest

from pyrmq.codes import RequestCode
from pyrmq.errors import ConfigError
from pyrmq.server.security import roles, watched
from pyrmq.server.security.directory import make_secure
from pyrmq.server.security.roles import add_user, policies_of
from pyrmq.server.security.users import UserFile
from pyrmq.server.security.watched import read_private, write_private

if TYPE_CHECKING:
    from pathlib import Path


def add(directory: Path, name: str) -> None:
    """Add a user as `pyrmq secure user` does."""
    add_user(directory, name, policies_of("operator"))


def names_in(directory: Path) -> set[str]:
    """Return the names of the users in the file."""
    known = json.loads((directory / "users.json").read_bytes())
    return {user["username"] for user in known["users"]}


@pytest.mark.parametrize("other", ["adds", "deletes"])
def test_a_change_between_the_reading_and_the_writing_of_another_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    make_secure(tmp_path / "secure")
    directory = tmp_path / "secure"
    add(directory, "bob")
    before = names_in(directory)
    server = UserFile(str(directory / "users.json"), "DefaultCluster", authorization=True)

    def delete() -> None:
        server.change(RequestCode.AUTH_DELETE_USER, {"username": "bob"}, b"")

    def add_the_second() -> None:
        add(directory, "second")

    change = threading.Thread(target=add_the_second if other == "adds" else delete)

    def read(what: str, path: str) -> tuple[bytes, watched.Version]:
        found = read_private(what, path)
        if change.ident is None:
            change.start()
            # It may wait for this one.
            change.join(0.3)
        return found

    monkeypatch.setattr(roles, "read_private", read)
    add(directory, "first")
    change.join(10)
    wanted = before | {"first", "second"} if other == "adds" else before - {"bob"} | {"first"}
    assert names_in(directory) == wanted
    assert not [*directory.glob("*.tmp")]


def test_two_writers_of_one_file_never_write_into_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users.json"
    real = os.fsync

    def sync(descriptor: int) -> None:
        monkeypatch.setattr(os, "fsync", real)
        write_private(str(file), b"second")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", sync)
    write_private(str(file), b"the first")
    assert file.read_bytes() == b"the first"


def test_policies_that_contradict_each_other_are_used_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_secure(tmp_path / "secure")
    file = tmp_path / "secure" / "users.json"
    known = json.loads(file.read_bytes())
    entries = [
        {"resource": f"Topic:{topic}", "actions": ["Pub", "Get"], "decision": decision}
        for topic in ("a", "b")
        for decision in ("Allow", "Deny")
    ]
    acls = known["acls"]
    known["acls"] = [{"subject": "User:app", "policies": [{"entries": entries}]}]
    write_private(str(file), json.dumps(known).encode())

    def lines(level: str) -> list[str]:
        found = [one.getMessage() for one in caplog.records if one.levelname == level]
        caplog.clear()
        return found

    expected = [
        f"in `{file}`, entries of User:app for Topic:{topic} contradict each other: they allow and "
        "deny Pub, Get from the same addresses; keep one of them: until then, the one that denies "
        "counts"
        for topic in ("a", "b")
    ]
    server = UserFile(str(file), "DefaultCluster", authorization=True)
    assert lines("ERROR") == expected
    # A user is added beside them, with a warning; the server reads the file again.
    add(tmp_path / "secure", "bob")
    assert lines("WARNING") == expected
    assert server.reload()
    assert lines("ERROR") == expected
    body = json.dumps({"policies": [{"entries": entries[:2]}]}).encode()
    change = (RequestCode.AUTH_UPDATE_ACL, {"subject": "User:bob"}, body)
    with pytest.raises(ConfigError, match="entries of User:bob for Topic:a contradict each other"):
        server.change(*change)
    # Another request is not refused for them, and does not report them again.
    server.change(RequestCode.AUTH_DELETE_USER, {"username": "bob"}, b"")
    assert not caplog.records
    write_private(str(file), json.dumps(known | {"acls": acls}).encode())
    assert server.reload()
    assert not caplog.records


def test_a_change_does_not_wait_for_ever_for_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_secure(tmp_path / "secure")
    monkeypatch.setattr(watched, "_LOCK_SECONDS", 0.1)
    file = str(tmp_path / "secure" / "users.json")
    with watched.changing_alone(file), pytest.raises(TimeoutError, match="another process"):
        add(tmp_path / "secure", "bob")
    add(tmp_path / "secure", "bob")


def test_a_change_is_seen_at_the_next_look_which_comes_within_half_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the times that the thread waits between its looks: those of a clock are the machine's."""
    make_secure(tmp_path / "secure")
    server = UserFile(str(tmp_path / "secure" / "users.json"), "DefaultCluster", authorization=True)
    waits: list[float] = []
    counts = [server.guard.users]

    def wait(timeout: float | None = None) -> bool:
        assert timeout is not None
        if waits:
            counts.append(server.guard.users)
        waits.append(timeout)
        if len(waits) < 4:
            add(tmp_path / "secure", f"user{len(waits)}")
        return len(waits) == 4

    monkeypatch.setattr(server._stop, "wait", wait)
    server._watch()
    assert counts == [3, 4, 5, 6]
    assert max(waits) <= 0.5
