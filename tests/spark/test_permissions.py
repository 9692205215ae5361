"""Reads and writes where users are checked: by policies, and through TLS. Without Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import StringType, StructField, StructType

from pyrmq import Admin, Credentials, RmqError
from pyrmq.errors import PermissionDenied
from pyrmq.server.security.directory import make_secure, secure_values
from pyrmq.spark.writing.task import Task, Writer
from pyrmq.testing import cluster
from tests.e2e.pairs import Pair
from tests.spark.test_choices import read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyrmq.testing import Cluster

pytestmark = [pytest.mark.timeout(60)]
BODY = StructType([StructField("body", StringType())])
ROOT, BOB = ("root", "root-pass-7f3a"), ("bob", "bob-pass-91cc")


def written(path: Path, value: object) -> str:
    """Write JSON into a file that only its owner may read."""
    path.write_text(json.dumps(value), encoding="utf-8")
    path.chmod(0o600)
    return str(path)


def people() -> dict[str, Any]:
    entries = [
        {"resource": resource, "actions": actions, "decision": "Allow"}
        for resource, actions in (
            ("Topic:orders", ["Pub", "Sub", "Get"]),
            ("Group:pyrmq-spark", ["Sub", "Get"]),
        )
    ]
    return {
        "users": [
            {"username": ROOT[0], "password": ROOT[1], "userType": "Super"},
            {"username": BOB[0], "password": BOB[1]},
        ],
        "acls": [{"subject": "User:bob", "policies": [{"entries": entries}]}],
    }


def write(given: dict[str, str], **more: str) -> None:
    """Send one row, as a task of a write does."""
    writer = Writer({**given, **more}, BODY, overwrite=False)
    begun = writer._begin(None)
    rows = iter([pa.RecordBatch.from_pydict({"body": ["a"]})])
    writer._send(rows, Task("q", 0, 0, 0), begun)


def keys(user: tuple[str, str]) -> dict[str, str]:
    return {"accessKey": user[0], "secretKey": user[1]}


@pytest.fixture
def checked(tmp_path: Path) -> Iterator[Cluster]:
    """A broker that checks its users, with the topics `orders` and `secret`."""
    with cluster(
        authentication_enabled=True,
        authorization_enabled=True,
        auth_config_path=written(tmp_path / "users.json", people()),
        inner_client_credentials_path=written(tmp_path / "root.json", keys(ROOT)),
    ) as running:
        with Admin(name_server=running.name_server, credentials=Credentials(*ROOT)) as admin:
            for topic in ("orders", "secret"):
                admin.create_topic(topic, queues=1)
        yield running


def test_a_topic_that_a_user_may_not_use_is_named(checked: Cluster, tmp_path: Path) -> None:
    given = {
        "nameServer": checked.name_server,
        "credentials": written(tmp_path / "credentials.json", keys(BOB)),
    }

    for delivery in ("at-least-once", "exactly-once"):
        write(given, topic="orders", delivery=delivery)
        with pytest.raises(PermissionDenied, match="secret"):
            write(given, topic="secret", delivery=delivery)
    assert read({**given, "topic": "orders"}) == [(b"a",), (b"a",)]
    with pytest.raises(PermissionDenied, match="secret"):
        read({**given, "topic": "secret"})
    with pytest.raises(PermissionDenied):
        read({"nameServer": checked.name_server, "topic": "orders"})


def test_rows_go_through_tls_with_one_file(tmp_path: Path) -> None:
    files = tmp_path / "secure"
    make_secure(files, ["broker.example"])
    servers = Pair(tmp_path, **secure_values(files))
    try:
        root = Credentials.from_file(files / "admin.toml")
        with Admin(name_server=servers.address, credentials=root) as admin:
            admin.create_topic("orders", queues=1)
        given = {"nameServer": servers.address, "topic": "orders", "timeoutMs": "2000"}
        secured = {**given, "credentials": str(files / "app.toml")}
        for delivery in ("at-least-once", "exactly-once"):
            write(secured, delivery=delivery)
        assert read(secured) == [(b"a",), (b"a",)]
        with pytest.raises(RmqError):
            read(given)
    finally:
        servers.stop()
