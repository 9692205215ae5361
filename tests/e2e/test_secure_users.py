"""`pyrmq secure user, export, import`: ready-made rights, and users that move between brokers."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from tests.e2e.pairs import Pair
from tests.e2e.wire import await_true
from tests.secret_search import planted, used

from pyrmq import Admin, Broker, Credentials, Producer, PullConsumer, RmqError
from pyrmq.cli import main
from pyrmq.codes import RequestCode
from pyrmq.remoting import Client
from pyrmq.server.security.directory import make_secure, secure_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NO_PERMISSION = 16


class Secured(Pair):
    """A cluster on the files of `pyrmq secure init`, with a user of each role."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "secure"
        make_secure(self.files)
        super().__init__(directory, **secure_values(self.files))
        with Admin(name_server=self.address, credentials=self.user("admin")) as admin:
            for topic in ("orders", "orders-eu", "bills"):
                admin.create_topic(topic, queues=1)
        self.add("shop", "producer", "--topic", "orders*")
        self.add("kitchen", "consumer", "--topic", "orders", "--group", "cooks")
        self.add("ops", "operator")
        self.add("viewer", "read-only")
        await_true(lambda: all(self.knows(name) for name in ("shop", "viewer")), seconds=5)

    def add(self, name: str, role: str, *more: str) -> None:
        """Add a user by the command."""
        assert main(["secure", "user", str(self.files), name, "--role", role, *more]) == 0

    def user(self, name: str) -> Credentials:
        """Return the credentials of a user."""
        return Credentials.from_file(self.files / f"{name}.toml")

    def servers(self) -> list[str]:
        """Return the addresses of the three servers."""
        return [self.address, *(broker.address for broker in self.brokers)]

    def knows(self, name: str) -> bool:
        """Whether all servers let a user look at a topic's route or offsets."""
        fields: dict[str, Any] = {"topic": "orders", "queueId": 0}
        with Client(credentials=self.user(name)) as client:
            codes = [105, 30, 30]
            answers = zip(self.servers(), codes, strict=True)
            return all(client.request(at, code, fields).code == 0 for at, code in answers)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    cluster = Secured(tmp_path_factory.mktemp("roles"))
    yield cluster
    cluster.stop()


def test_the_file_of_a_user_is_private_and_its_secret_its_own(secured: Secured) -> None:
    texts = set()
    for name in ("shop", "kitchen", "ops", "viewer"):
        file = secured.files / f"{name}.toml"
        assert file.stat().st_mode & 0o777 == 0o600
        texts.add(file.read_text())
    assert len(texts) == 4
    assert (secured.files / "users.json").stat().st_mode & 0o777 == 0o600


def test_a_producer_sends_to_its_topics_and_does_nothing_else(secured: Secured) -> None:
    given: dict[str, Any] = {"name_server": secured.address, "credentials": secured.user("shop")}
    with Producer(retries=0, **given) as producer:
        producer.send("orders", b"one")
        producer.send_batch("orders-eu", [b"two", b"three"])
        with pytest.raises(RmqError, match="Topic:bills"):
            producer.send("bills", b"x")
    with Client(credentials=secured.user("shop")) as client:
        for code, fields in (
            (RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": "cooks", "topic": "orders"}),
            (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "orders-new"}),
            (RequestCode.GET_BROKER_CONFIG, {}),
        ):
            answer = client.request(secured.brokers[0].address, code, fields)
            assert answer.code == NO_PERMISSION, (code, answer)


def test_a_consumer_reads_its_topics_in_its_groups_and_does_nothing_else(secured: Secured) -> None:
    with Producer(name_server=secured.address, credentials=secured.user("app")) as producer:
        producer.send("orders", b"for the kitchen")
    given: dict[str, Any] = {"name_server": secured.address}
    given["credentials"] = secured.user("kitchen")
    with PullConsumer(group="cooks", **given) as consumer:
        consumer.subscribe("orders")
        assert consumer.poll(timeout=30)
        consumer.commit()
    with Producer(retries=0, **given) as producer, pytest.raises(RmqError, match="Topic:orders"):
        producer.send("orders", b"x")
    pull = dict.fromkeys(("queueId", "queueOffset", "commitOffset", "suspendTimeoutMillis"), 0)
    pull |= {"maxMsgNums": 1, "sysFlag": 4, "subVersion": 0}
    with Client(credentials=secured.user("kitchen")) as client:
        for topic, group in (("orders", "others"), ("bills", "cooks")):
            fields: dict[str, Any] = {**pull, "topic": topic, "consumerGroup": group}
            code = RequestCode.PULL_MESSAGE
            answer = client.request(secured.brokers[0].address, code, fields)
            assert answer.code == NO_PERMISSION, (topic, group)


def test_an_operator_changes_everything_but_super_users_and_sends_nothing(secured: Secured) -> None:
    given: dict[str, Any] = {"name_server": secured.address, "credentials": secured.user("ops")}
    with Admin(**given) as admin:
        admin.create_topic("made-by-ops", queues=1)
        assert "made-by-ops" in admin.topics()
        admin.delete_topic("made-by-ops")
    with Producer(retries=0, **given) as producer, pytest.raises(RmqError, match="Topic:orders"):
        producer.send("orders", b"x")
    broker = secured.brokers[0].address
    with Client(credentials=secured.user("ops")) as client:
        body = b"brokerPermission=6\n"
        assert client.request(broker, RequestCode.UPDATE_BROKER_CONFIG, {}, body).code == 0
        fields, user = (
            {"username": "boss"},
            {"password": used("boss-password"), "userType": "Super"},
        )
        data = json.dumps(user).encode()
        answer = client.request(broker, RequestCode.AUTH_CREATE_USER, fields, data)
        assert answer.code == NO_PERMISSION


def test_a_reader_looks_at_everything_and_changes_nothing(secured: Secured) -> None:
    given: dict[str, Any] = {"name_server": secured.address, "credentials": secured.user("viewer")}
    with Admin(**given) as admin:
        assert "orders" in admin.topics()
        assert admin.cluster()
        changes: tuple[Callable[[], object], ...] = (
            lambda: admin.create_topic("by-viewer", queues=1),
            lambda: admin.delete_topic("bills"),
        )
        for change in changes:
            with pytest.raises(RmqError, match="permission"):
                change()
    with Producer(retries=0, **given) as producer, pytest.raises(RmqError, match="permission"):
        producer.send("orders", b"x")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["new", "--role", "producer"], "needs `--topic`"),
        (["new", "--role", "consumer", "--topic", "t"], "needs `--group`"),
        (["new", "--role", "operator", "--topic", "t"], "does not use `--topic`"),
        (["new", "--role", "producer", "--topic", "a b"], "neither a name of a topic"),
        (["new", "--role", "producer", "--topic", "a*b"], "neither a name of a topic"),
        (["app", "--role", "operator"], "already has a user `app`"),
        (["../new", "--role", "operator"], "not a name for a user"),
        (["ca-key", "--role", "operator"], "exists"),
        (["new", "--role", "boss"], "invalid choice"),
    ],
)
def test_a_wrong_user_changes_nothing(
    tmp_path: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_secure(tmp_path / "secure")
    (tmp_path / "secure" / "ca-key.toml").write_text("")
    before = {file: file.read_bytes() for file in (tmp_path / "secure").iterdir()}
    assert main(["secure", "user", str(tmp_path / "secure"), *words]) == 2
    assert text in capsys.readouterr().err
    assert {file: file.read_bytes() for file in (tmp_path / "secure").iterdir()} == before


def test_a_file_of_users_that_is_broken_or_open_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_secure(tmp_path / "secure")
    users = planted(tmp_path / "secure" / "users.json")
    whole = users.read_text()
    command = ["secure", "user", str(tmp_path / "secure"), "ops", "--role", "operator"]
    users.write_text(whole[:200])
    assert main(command) == 2
    assert "cannot use" in capsys.readouterr().err
    users.write_text(whole)
    users.chmod(0o644)
    assert main(command) == 2
    assert "chmod 600" in capsys.readouterr().err
    assert users.read_text() == whole
    assert not (tmp_path / "secure" / "ops.toml").exists()
    users.chmod(0o600)
    assert main(command) == 0


def test_users_move_from_one_broker_to_another(
    secured: Secured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_secure(tmp_path / "other")
    values = secure_values(tmp_path / "other")
    # One authority for both, and a super user of one name with another secret.
    for name in ("ca.pem", "server.pem", "server-key.pem"):
        (tmp_path / "other" / name).write_bytes((secured.files / name).read_bytes())
    other = Broker(
        listen_port=0,
        bind_address="127.0.0.1",
        broker_ip1="127.0.0.1",
        store_path_root_dir=str(tmp_path / "store"),
        mapped_file_size_commit_log=64 << 20,
        **values,  # type: ignore[arg-type]
    )
    file, source = tmp_path / "users-moved.json", secured.brokers[0].address

    def run(*words: str, by: Path) -> int:
        with monkeypatch.context() as own:
            own.setenv("PYRMQ_CREDENTIALS", str(by))
            return main(["secure", *words])

    with other:
        assert run("export", source, str(file), by=secured.files / "viewer.toml") == 2
        assert not file.exists()
        assert run("export", source, str(file), by=secured.files / "admin.toml") == 0
        assert file.stat().st_mode & 0o777 == 0o600
        assert run("export", source, str(file), by=secured.files / "admin.toml") == 2
        names = {user["username"] for user in json.loads(file.read_text())["users"]}
        assert {"admin", "shop", "kitchen", "viewer"} <= names
        # The file has other secrets of `admin`, in whose name it is imported.
        by_other = tmp_path / "other" / "admin.toml"
        assert run("import", str(file), other.address, by=by_other) == 0
        assert run("import", str(file), other.address, by=by_other) == 1
        assert run("import", str(file), other.address, by=secured.files / "admin.toml") == 0
        fields: dict[str, Any] = {"topic": "orders", "queueId": 0, "consumerGroup": "cooks"}
        with Client(credentials=secured.user("kitchen")) as client:
            code = RequestCode.QUERY_CONSUMER_OFFSET
            assert client.request(other.address, code, fields).code != NO_PERMISSION
            fields["topic"] = "bills"
            assert client.request(other.address, code, fields).code == NO_PERMISSION


def test_programs_get_an_object_of_what_was_done(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(secured.files / "admin.toml"))

    def done(*words: str) -> dict[str, Any]:
        assert main(["secure", *words, "--json"]) == 0
        printed = capsys.readouterr().out
        secrets = re.findall(r'secretKey = "(.+)"', (secured.files / "admin.toml").read_text())
        assert not any(secret in printed for secret in secrets)
        tree: dict[str, Any] = json.loads(printed)
        return tree

    capsys.readouterr()
    made, directory = done("init", str(tmp_path / "new")), tmp_path / "new"
    assert made["directory"] == str(directory)
    assert set(made["files"]) == {path.name for path in directory.iterdir()}
    role = ("--role", "producer", "--topic", "orders")
    added = done("user", str(directory), "till", *role)
    assert (added["user"], added["file"]) == ("till", str(directory / "till.toml"))
    assert added["entries"] == [
        {"resource": "Topic:orders", "actions": ["Pub", "Get"], "decision": "Allow"}
    ]
    broker, file = secured.brokers[0].address, tmp_path / "moved-users.json"
    moved = done("export", broker, str(file))
    known = json.loads(file.read_text())
    counts = {"users": len(known["users"]), "acls": len(known["acls"])}
    assert moved == {"file": str(file), **counts}
    assert done("import", str(file), broker) == {"broker": broker, **counts}


def test_passwords_that_a_broker_does_not_show_come_from_a_file(
    secured: Secured,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(secured.files / "viewer.toml"))
    file, passwords = tmp_path / "users.json", tmp_path / "passwords-of-users.json"
    command = ["secure", "export", secured.brokers[0].address, str(file)]
    assert main(command) == 2
    assert "does not show the password of admin" in capsys.readouterr().err
    known = json.loads((secured.files / "users.json").read_text())["users"]
    passwords.write_text(json.dumps({user["username"]: user["password"] for user in known}))
    passwords.chmod(0o644)
    assert main([*command, "--passwords", str(passwords)]) == 2
    assert "chmod 600" in capsys.readouterr().err
    passwords.chmod(0o600)
    assert main([*command, "--passwords", str(passwords)]) == 0
    found = {user["username"]: user["password"] for user in json.loads(file.read_text())["users"]}
    assert found == {user["username"]: user["password"] for user in known}
