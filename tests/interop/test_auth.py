"""Users and policies between our side and RocketMQ 5.5.0: signatures, decisions, mqadmin."""

from __future__ import annotations

import json
import os
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, Credentials, Producer, PullConsumer, Tls
from pyrmq.cli import main
from pyrmq.codes import RequestCode
from pyrmq.errors import PermissionDenied, RouteError
from pyrmq.remoting import Client, Command
from tests.e2e.test_security import signed
from tests.e2e.wire import Connection, await_true
from tests.interop import artifacts
from tests.interop.jvm import JavaProcess, temporary_directory
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import MAIN_MQADMIN, JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VERSION = "5.5.0"
PASSWORD = "root-pass-5c1e"
NO_PERMISSION = 16
USERS, QUESTIONS = 50, 10
"""Together 500 decisions of each broker."""

ROOT = Credentials("root", PASSWORD)
_PARTS = "org.apache.rocketmq.auth"


def private(path: Path, value: object) -> Path:
    """Write JSON into a file of mode 0600."""
    path.write_text(json.dumps(value), encoding="utf-8")
    path.chmod(0o600)
    return path


def java_properties() -> dict[str, str]:
    """Return the options by which the real servers check the users that they are given."""
    credentials = json.dumps({"accessKey": "root", "secretKey": PASSWORD}, separators=(",", ":"))
    user = json.dumps({"username": "root", "password": PASSWORD}, separators=(",", ":"))
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProvider": f"{_PARTS}.authentication.provider.DefaultAuthenticationProvider",
        "authorizationProvider": f"{_PARTS}.authorization.provider.DefaultAuthorizationProvider",
        "authenticationMetadataProvider": f"{_PARTS}.authentication.provider."
        "LocalAuthenticationMetadataProvider",
        "authorizationMetadataProvider": f"{_PARTS}.authorization.provider."
        "LocalAuthorizationMetadataProvider",
        "initAuthenticationUser": user,
        "innerClientAuthenticationCredentials": credentials,
    }


@pytest.fixture(scope="module")
def java() -> Iterator[tuple[str, str]]:
    """The real servers with authentication and authorization: both addresses."""
    artifacts.require_java()
    with JavaNameServer(VERSION) as names:
        broker = JavaBroker(VERSION, names.address, properties=java_properties()).start()
        try:
            yield names.address, f"127.0.0.1:{broker.port}"
        finally:
            # It takes a quarter of a minute to stop.
            broker.kill()


@pytest.fixture(scope="module")
def ours() -> Iterator[tuple[str, str]]:
    """Our servers with the same: both addresses."""
    directory = temporary_directory("auth")
    users = [{"username": "root", "password": PASSWORD, "userType": "Super"}]
    own = private(directory / "root.json", {"accessKey": "root", "secretKey": PASSWORD})

    properties: dict[str, object] = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authConfigPath": private(directory / "users.json", {"users": users}),
        "innerClientCredentialsPath": own,
        # Dozens of forged frames come from one address.
        "failedLoginMaxDelay": 0,
    }
    with (
        OurNameServer(properties=properties) as names,
        OurBroker(names.address, properties=properties) as broker,
    ):
        yield names.address, f"127.0.0.1:{broker.port}"


def ask(
    broker: str, code: int, fields: dict[str, Any], body: object = None, tls: Tls | None = None
) -> Any:  # noqa: ANN401 - an answer's JSON
    """Ask a broker as the super user."""
    with Client(credentials=ROOT, tls=tls) as client:
        data = None if body is None else json.dumps(body).encode()
        answer = client.ask(broker, code, fields, data, timeout=10)
    return json.loads(answer.body) if answer.body else None


def add_user(
    broker: str, name: str, entries: list[dict[str, Any]], tls: Tls | None = None
) -> Credentials:
    """Add a user with these policies to a broker."""
    password = {"password": f"{name}-pw"}
    ask(broker, RequestCode.AUTH_CREATE_USER, {"username": name}, password, tls)
    policies = [{"policyType": "Custom", "entries": entries}]
    subject = {"subject": f"User:{name}"}
    ask(broker, RequestCode.AUTH_CREATE_ACL, subject, subject | {"policies": policies}, tls)
    return Credentials(name, f"{name}-pw")


@pytest.mark.parametrize("side", ["java", "ours"])
def test_our_clients_work_in_the_name_of_a_user(side: str, request: pytest.FixtureRequest) -> None:
    names, broker = request.getfixturevalue(side)
    with Admin(name_server=names, credentials=ROOT) as admin:
        await_true(admin.cluster, seconds=60)
        admin.create_topic("orders")
        admin.create_topic("other")
    entries = [
        {"resource": "Topic:orders", "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
        {"resource": "Group:kitchen", "actions": ["Sub", "Get"], "decision": "Allow"},
    ]
    cook = add_user(broker, "cook", entries)

    def is_known() -> bool:
        # Our name server reads the broker's file again when it changes; Java's checks nothing.
        with Client(credentials=cook) as client:
            asked = {"topic": "orders"}
            return client.request(names, RequestCode.GET_ROUTEINFO_BY_TOPIC, asked).code == 0

    await_true(is_known, seconds=30)
    with Producer(name_server=names, credentials=cook, retries=0) as producer:
        for number in range(20):
            producer.send("orders", f"{number} €", keys='"\\ü', tags="t")
        producer.send_batch("orders", [b"1", b"2", b"3"])
        with pytest.raises((PermissionDenied, RouteError)):
            producer.send("other", b"x")
    with (
        Producer(name_server=names, credentials=Credentials("cook", "wrong"), retries=0) as thief,
        pytest.raises((PermissionDenied, RouteError)),
    ):
        thief.send("orders", b"x")
    with PullConsumer(name_server=names, group="kitchen", credentials=cook) as consumer:
        consumer.subscribe("orders")
        found = 0
        while found < 23:
            found += len(consumer.poll(timeout=30))
        assert found == 23
        consumer.commit()


def made_up(chance: random.Random) -> tuple[list[dict[str, Any]], list[tuple[int, dict[str, Any]]]]:
    """Return policies, and requests about resources near those that they name."""
    names = ["a", "ab", "abc", "abcd", "b"]

    def pattern() -> str:
        name = chance.choice(names)
        kind = chance.choice(["Topic", "Topic", "Group"])
        return chance.choice(
            [f"{kind}:{name}", f"{kind}:{name}*", f"{kind}:{name}*", f"{kind}:*", "*"]
        )

    actions = ["Pub", "Sub", "Get", "Update", "Create", "Delete", "List", "All"]
    sources = [
        [],
        [],
        [],
        ["127.0.0.1"],
        ["127.0.0.0/8", "10.0.0.1"],
        ["10.0.0.0/8"],
        ["192.0.2.1"],
    ]
    entries = [
        {
            "resource": resource,
            "actions": chance.sample(actions, chance.choice([1, 2, 4])),
            "decision": chance.choice(["Allow", "Allow", "Deny"]),
            "sourceIps": chance.choice(sources),
        }
        for resource in sorted({pattern() for _ in range(chance.randrange(1, 7))})
    ]
    asked: list[tuple[int, dict[str, Any]]] = []
    for _ in range(QUESTIONS):
        topic, group = chance.choice(names), chance.choice(names)
        both: dict[str, Any] = {"topic": topic, "consumerGroup": group, "queueId": 0}
        send = {"a": "g", "b": topic, "c": "TBW102", "d": 4} | dict.fromkeys("efgh", 0)
        pull = both | {"maxMsgNums": 1, "sysFlag": 4, "subscription": "*"}
        pull |= dict.fromkeys(("queueOffset", "commitOffset", "suspendTimeoutMillis"), 0)
        questions: list[tuple[int, dict[str, Any]]] = [
            (RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}),
            (RequestCode.QUERY_CONSUMER_OFFSET, both),
            (RequestCode.UPDATE_CONSUMER_OFFSET, both | {"commitOffset": 0}),
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": f"{group}-none"}),
            (RequestCode.SEND_MESSAGE_V2, send),
            (RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}),
            (RequestCode.PULL_MESSAGE, pull | {"subVersion": 0}),
        ]
        asked.append(chance.choice(questions))
    return entries, asked


def test_500_decisions_are_those_of_the_real_broker(
    java: tuple[str, str], ours: tuple[str, str]
) -> None:
    chance, counts, different = random.Random(20_261_123), [0, 0], []
    for number in range(USERS):
        entries, asked = made_up(chance)
        decided = []
        for _, broker in (java, ours):
            user = add_user(broker, f"user{number}", entries)
            with Client(credentials=user) as client:
                codes = [client.request(broker, code, fields, b"x").code for code, fields in asked]
            decided.append([code == NO_PERMISSION for code in codes])
        for question, theirs, own in zip(asked, *decided, strict=True):
            counts[theirs] += 1
            if theirs != own:
                different.append((question, entries, theirs, own))
    assert not different, f"{len(different)} of {sum(counts)}: {different[:3]}"
    assert min(counts) > 50, counts


def test_forged_and_repeated_frames_are_decided_as_by_the_real_broker(
    java: tuple[str, str], ours: tuple[str, str]
) -> None:
    """All on one connection, behind a signed request: neither believes a connection."""
    read, name = RequestCode.GET_MAX_OFFSET, "mallory"
    fields = {"topic": "forged1", "queueId": "0"}
    good = signed(name, f"{name}-pw", fields)
    of_root = signed("root", PASSWORD, fields)
    text = good["Signature"]
    turned = text[1] + text[0] + text[2:] if text[0] != text[1] else "x" + text[1:]
    frames: dict[str, tuple[int, dict[str, str]]] = {
        "signed": (read, good),
        "unsigned behind signed": (read, fields),
        "the same once more": (read, good),
        "the same under another code": (RequestCode.GET_MIN_OFFSET, good),
        "its text divided differently": (read, good | {"topic": "forged", "topiz": "1"}),
        "without a signature": (read, fields | {"AccessKey": name}),
        "with an empty signature": (read, good | {"Signature": ""}),
        "without a user": (read, {key: good[key] for key in good if key != "AccessKey"}),
        "with an empty user": (read, good | {"AccessKey": ""}),
        "in another's name": (read, good | {"AccessKey": "root"}),
        "with another's signature": (read, good | {"Signature": of_root["Signature"]}),
        "in nobody's name": (read, good | {"AccessKey": "nobody"}),
        "the user's name in capitals": (read, good | {"AccessKey": name.upper()}),
        "for another topic": (read, good | {"topic": "forged2"}),
        "with a field more": (read, good | {"more": "x"}),
        "with an empty field more": (read, good | {"more": ""}),
        "without a field": (read, {key: good[key] for key in good if key != "queueId"}),
        "letters of the signature turned round": (read, good | {"Signature": turned}),
        "no Base64": (read, good | {"Signature": "!" * 28}),
        "with a blank behind the signature": (read, good | {"Signature": good["Signature"] + " "}),
        "of a wrong secret": (read, signed(name, "wrong", fields)),
        "of an empty secret": (read, signed(name, " ", fields)),
        "of a forbidden topic": (read, signed(name, f"{name}-pw", fields | {"topic": "other"})),
        "signed at the end": (read, good),
    }
    decided: dict[str, list[int]] = {what: [] for what in frames}
    for _, broker in (java, ours):
        entry = {"resource": "Topic:forged*", "actions": ["Get"], "decision": "Allow"}
        add_user(broker, name, [entry])
        with Connection(broker) as connection:
            for at, (code, given) in enumerate(frames.values()):
                connection.write(Command(code, {**given}, opaque=at).encode())
            answers = sorted((connection.read() for _ in frames), key=lambda one: one.opaque)
        for what, answer in zip(frames, answers, strict=True):
            decided[what].append(answer.code)
    assert {what: codes for what, codes in decided.items() if len(set(codes)) > 1} == {}
    refused = [what for what, codes in decided.items() if NO_PERMISSION in codes]
    assert "unsigned behind signed" in refused
    assert not {"signed", "the same once more", "signed at the end"} & set(refused)


def mqadmin(version: str, *words: str) -> str:
    """Run a command of mqadmin that signs as the super user."""
    home = temporary_directory("tools")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: root\nsecretKey: {PASSWORD}\n")
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    process = JavaProcess("mqadmin", version, MAIN_MQADMIN, arguments=list(words), work_dir=home)
    done = subprocess.run(
        process.command(), capture_output=True, text=True, check=False, timeout=90, cwd=home
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("release", [pytest.param("4.9.7", marks=pytest.mark.interop_all), "5.5.0"])
def test_requests_that_java_signs_are_served(release: str, ours: tuple[str, str]) -> None:
    names, _ = ours
    artifacts.require_java()
    text = mqadmin(release, "clusterList", "-n", names)
    assert "broker-a" in text, text


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.interop_all)], ids=["create", "delete"]
)
def test_mqadmin_changes_and_shows_users_and_policies(
    ours: tuple[str, str], *, whole: bool
) -> None:
    """Each command takes the start of a JVM: the gate has half of them."""
    _, broker = ours
    artifacts.require_java()
    name = "bob" if whole else "ann"

    def run(*words: str) -> str:
        return mqadmin(VERSION, *words, "-b", broker)

    assert "success" in run("createUser", "-u", name, "-p", f"{name}-pw", "-t", "Normal")
    text = run(
        *("createAcl", "-s", f"User:{name}", "-r", "Topic:t1,Group:g*", "-a", "PUB,SUB"),
        *("-d", "ALLOW", "-i", "192.0.2.0/24"),
    )
    assert "success" in text, text
    text = run("listAcl", "-s", name)
    assert "Topic:t1" in text, text
    assert "Group:g*" in text, text
    assert "192.0.2.0/24" in text, text
    shown = ask(broker, RequestCode.AUTH_GET_ACL, {"subject": f"User:{name}"})
    assert len(shown["policies"][0]["entries"]) == 2
    if whole:
        assert name in run("listUser")
        assert "success" in run("deleteAcl", "-s", f"User:{name}", "-r", "Topic:t1")
        shown = ask(broker, RequestCode.AUTH_GET_ACL, {"subject": f"User:{name}"})
        assert [entry["resource"] for entry in shown["policies"][0]["entries"]] == ["Group:g*"]


@pytest.mark.interop_all
@pytest.mark.timeout(240)
@pytest.mark.parametrize("way", ["push-concurrent", "push-orderly"])
def test_a_go_consumer_reads_in_a_users_name(way: str, ours: tuple[str, str]) -> None:
    """The client's pull consumer signs nothing in this version."""
    program, (names, broker), topic = artifacts.go_program(), ours, f"go-{way}"
    bodies = [f"m-{number}" for number in range(50)]
    with Admin(name_server=names, credentials=ROOT) as admin:
        await_true(admin.cluster, seconds=60)
        admin.create_topic(topic)
    with Producer(name_server=names, credentials=ROOT) as producer:
        producer.send_batch(topic, [body.encode() for body in bodies])
    entries = [
        {"resource": f"{kind}:{topic}", "actions": ["Sub", "Get"], "decision": "Allow"}
        for kind in ("Topic", "Group")
    ]
    name = f"gopher-{way}"
    gopher = add_user(broker, name, entries)

    def is_known() -> bool:
        with Client(credentials=gopher) as client:
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            return client.request(names, code, {"topic": topic}).code == 0

    await_true(is_known, seconds=30)
    done = subprocess.run(
        [str(program), way, names, topic, topic, str(len(bodies))],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "ACCESS_KEY": name, "SECRET_KEY": f"{name}-pw"},
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert {row["body"] for row in rows} >= set(bodies)


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_each_command_of_mqadmin_about_users_does_its_work(ours: tuple[str, str]) -> None:
    artifacts.require_java()
    names, source = ours
    directory = temporary_directory("auth-target")
    users = [{"username": "root", "password": PASSWORD, "userType": "Super"}]
    properties: dict[str, object] = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authConfigPath": private(directory / "users.json", {"users": users}),
        "innerClientCredentialsPath": private(
            directory / "root.json", {"accessKey": "root", "secretKey": PASSWORD}
        ),
    }
    with OurBroker(names, name="broker-b", properties=properties) as other:
        at, target = ("-b", source), f"127.0.0.1:{other.port}"
        rights = ("-r", "Topic:t1", "-a", "PUB", "-d", "ALLOW")
        steps: list[tuple[tuple[str, ...], str]] = [
            (("createUser", *at, "-u", "lea", "-p", "lea-pw-1", "-t", "Normal"), "success"),
            (("updateUser", *at, "-u", "lea", "-p", "lea-pw-2"), "success"),
            (("getUser", *at, "-u", "lea"), "lea"),
            (("listUser", *at), "lea"),
            (("createAcl", *at, "-s", "User:lea", *rights), "success"),
            (("updateAcl", *at, "-s", "User:lea", *rights[:3], "SUB", *rights[4:]), "success"),
            (("getAcl", *at, "-s", "User:lea"), "Sub"),
            (("listAcl", *at), "Topic:t1"),
            (("copyUser", "-f", source, "-t", target, "-u", "lea"), "success"),
            (("copyAcl", "-f", source, "-t", target, "-s", "User:lea"), "success"),
            (("getAcl", "-b", target, "-s", "User:lea"), "Topic:t1"),
            (("deleteAcl", *at, "-s", "User:lea"), "success"),
            (("deleteUser", *at, "-u", "lea"), "success"),
        ]
        for words, expected in steps:
            text = mqadmin(VERSION, *words)
            assert expected in text, (words, text)
        copied = ask(target, RequestCode.AUTH_GET_USER, {"username": "lea"})
        assert copied["password"] == "lea-pw-2"
        assert ask(source, RequestCode.AUTH_GET_USER, {"username": "lea"}) is None


def test_users_move_between_the_real_broker_and_ours(
    java: tuple[str, str],
    ours: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`pyrmq secure export` and `import`: Apache keeps users in RocksDB, and we in a file."""
    root = private(tmp_path / "root.json", {"accessKey": "root", "secretKey": PASSWORD})

    def run(*words: str) -> int:
        with monkeypatch.context() as own:
            own.setenv("PYRMQ_CREDENTIALS", str(root))
            return main(["secure", *words])

    entry = {"resource": "Topic:mine*", "actions": ["Pub", "Get"], "decision": "Allow"}
    asked: dict[str, Any] = {"queueId": 0}

    def may(broker: str, user: Credentials, topic: str) -> bool:
        with Client(credentials=user) as client:
            answer = client.request(broker, RequestCode.GET_MAX_OFFSET, asked | {"topic": topic})
            return answer.code != NO_PERMISSION

    for (_, source), (_, target), name in ((java, ours, "east"), (ours, java, "west")):
        mover = add_user(source, name, [entry | {"sourceIps": ["127.0.0.0/8"]}])
        users = ask(source, RequestCode.AUTH_LIST_USER, {"filter": ""})
        # Newer brokers of Apache's show no passwords.
        known = {user["username"]: f"{user['username']}-pw" for user in users} | {"root": PASSWORD}
        passwords = private(tmp_path / "user-secrets.json", known)
        file = tmp_path / f"{name}-users.json"
        assert run("export", source, str(file), "--passwords", str(passwords)) == 0
        assert not may(target, mover, "mine-1")
        assert run("import", str(file), target) == 0
        for broker in (source, target):
            assert may(broker, mover, "mine-1"), (name, broker)
            assert not may(broker, mover, "yours"), (name, broker)
        shown = ask(target, RequestCode.AUTH_GET_ACL, {"subject": f"User:{name}"})
        (policy,) = shown["policies"]
        assert [one["sourceIps"] for one in policy["entries"]] == [["127.0.0.0/8"]]
