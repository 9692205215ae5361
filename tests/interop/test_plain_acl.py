"""Accounts of 4.x between our side and RocketMQ 4.9.7: signatures, decisions, mqadmin."""

from __future__ import annotations

import json
import random
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, Credentials, Producer, PullConsumer, Tls
from pyrmq.codes import RequestCode
from pyrmq.errors import BrokerError
from pyrmq.remoting import Client
from tests.e2e.wire import await_true
from tests.interop import artifacts
from tests.interop.driver import Driver, DriverError
from tests.interop.jvm import JavaProcess, temporary_directory
from tests.interop.ours import OurBroker, OurNameServer
from tests.interop.rocketmq import MAIN_MQADMIN, JavaBroker, JavaNameServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# RocketMQ 4.9.7 has a place of its own in `make interop`; the gate runs 5.5.0 alone.
pytestmark = pytest.mark.interop_all

VERSION = "4.9.7"
SECRET, COOK_SECRET = "keeper-secret-71b2", "kitchen-secret-0e55"
KEEPER, COOK = Credentials("keeper7", SECRET), Credentials("kitchen7", COOK_SECRET)
ACCOUNTS = f"""\
accounts:
  - accessKey: keeper7
    secretKey: {SECRET}
    admin: true
  - accessKey: kitchen7
    secretKey: {COOK_SECRET}
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB|SUB, bills=SUB]
    groupPerms: [kitchen=SUB]
"""
REFUSED = "org.apache.rocketmq.acl.common.AclException: "
USERS, QUESTIONS = 30, 10
"""Together 300 decisions of each broker."""


def add_accounts(home: Path) -> Path:
    """Write the main file of accounts under a home directory."""
    file = home / "conf" / "plain_acl.yml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(ACCOUNTS, encoding="utf-8")
    file.chmod(0o600)
    return home


@pytest.fixture(scope="module")
def java() -> Iterator[tuple[str, str]]:
    """The real servers, the broker with accounts: both addresses."""
    artifacts.require_java()
    with JavaNameServer(VERSION) as names:
        broker = JavaBroker(VERSION, names.address, properties={"aclEnable": "true"})
        add_accounts(broker.work_dir)
        with broker:
            yield names.address, broker.address


@pytest.fixture(scope="module")
def ours() -> Iterator[tuple[str, str]]:
    """Our servers, the broker with the same accounts: both addresses."""
    home = add_accounts(temporary_directory("acl"))
    properties = {"aclEnable": "true", "rocketmqHome": home}
    with OurNameServer() as names, OurBroker(names.address, properties=properties) as broker:
        yield names.address, f"127.0.0.1:{broker.port}"


@pytest.mark.parametrize("side", ["java", "ours"])
def test_our_clients_work_for_an_account(side: str, request: pytest.FixtureRequest) -> None:
    use_account(request.getfixturevalue(side)[0])


def use_account(names: str, tls: Tls | None = None) -> None:
    """Use what the account of the kitchen may, and try what it may not."""
    with Admin(name_server=names, credentials=KEEPER, tls=tls) as admin:
        await_true(admin.cluster, seconds=60)
        for topic in ("orders", "bills", "other"):
            admin.create_topic(topic)
    servers: dict[str, Any] = {"name_server": names, "credentials": COOK, "tls": tls}
    with Producer(**servers, retries=0) as producer:
        results = [
            producer.send("orders", f"{number} €", keys='"\\ü', tags="t") for number in range(20)
        ]
        producer.send_batch("orders", [b"1", b"2", b"3"])
        with pytest.raises(BrokerError, match="No default permission for topic:bills") as raised:
            producer.send("bills", b"x")
        assert raised.value.remark.startswith(REFUSED)
    thief = Credentials("kitchen7", "wrong-secret")
    with (
        Producer(**servers | {"credentials": thief}, retries=0) as producer,
        pytest.raises(BrokerError, match="Check signature failed for accessKey=kitchen7"),
    ):
        producer.send("orders", b"x")
    with PullConsumer(**servers, group="kitchen") as consumer:
        consumer.subscribe("orders")
        found = 0
        while found < 23:
            found += len(consumer.poll(timeout=30))
        assert found == 23
        consumer.commit()
    with Admin(**servers) as admin:
        # Java's own client of this version signs such a query as its broker does not read it.
        await_true(
            lambda: admin.message(results[0].message_id, topic="orders").body == b"0 \xe2\x82\xac"
        )
        with pytest.raises(BrokerError, match="Need admin permission for request code=17"):
            admin.create_topic("more")


def made_up(
    chance: random.Random, name: str
) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
    """Return an account, and requests about resources near those that it names."""
    names = ["a", "ab", "abc", "b"]
    words = ["DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"]

    def listed() -> str | None:
        some = chance.sample(names, chance.randrange(4))
        return ",".join(f"{one}={chance.choice(words)}" for one in some) or None

    account = {
        "accessKey": name,
        "secretKey": f"{name}-secret",
        "admin": chance.choice(["false", "false", "false", "true"]),
        "defaultTopicPerm": chance.choice([None, *words]),
        "defaultGroupPerm": chance.choice([None, *words]),
        "topicPerms": listed(),
        "groupPerms": listed(),
        "whiteRemoteAddress": chance.choice(
            [None] * 8 + ["127.0.0.1-5", "127.0.0.{2,3}", "10.*.*.*", "127.*.*.*", "::1,127.0.0.2"]
        ),
    }
    asked: list[tuple[int, dict[str, Any]]] = []
    for _ in range(QUESTIONS):
        topic, group = chance.choice(names), chance.choice(names)
        both: dict[str, Any] = {"topic": topic, "consumerGroup": group, "queueId": 0}
        send = {"a": "g", "c": "TBW102", "d": 4} | dict.fromkeys("efgh", 0)
        pull = both | {"maxMsgNums": 1, "sysFlag": 4, "subscription": "*", "subVersion": 0}
        pull |= dict.fromkeys(("queueOffset", "commitOffset", "suspendTimeoutMillis"), 0)
        query = {"topic": topic, "key": "k", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 9}
        questions: list[tuple[int, dict[str, Any]]] = [
            (RequestCode.SEND_MESSAGE_V2, send | {"b": topic}),
            (RequestCode.SEND_MESSAGE_V2, send | {"a": group, "b": f"%RETRY%{group}"}),
            (RequestCode.PULL_MESSAGE, pull),
            (RequestCode.PULL_MESSAGE, pull | {"topic": f"%RETRY%{group}"}),
            (RequestCode.QUERY_MESSAGE, query),
            (
                RequestCode.CONSUMER_SEND_MSG_BACK,
                {"offset": 0, "group": group, "delayLevel": 0, "originTopic": f"%RETRY%{group}"},
            ),
            (RequestCode.UPDATE_CONSUMER_OFFSET, both | {"commitOffset": 0}),
            (RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group}),
            (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": group}),
            (RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "producerGroup": group}),
            (RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0}),
            (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": f"{group}-none"}),
            (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"{topic}-none"}),
        ]
        asked.append(chance.choice(questions))
    return {key: text for key, text in account.items() if text is not None}, asked


def words_of(remark: str) -> str | None:
    """Return the reason of a refusal; None if it is none. Apache adds where in its code it is."""
    return remark[len(REFUSED) :].split(", org.apache")[0] if remark.startswith(REFUSED) else None


def test_300_decisions_are_those_of_the_real_broker(
    java: tuple[str, str], ours: tuple[str, str]
) -> None:
    chance, counts, different = random.Random(20_261_127), [0, 0], []
    for number in range(USERS):
        account, asked = made_up(chance, f"account{number}")
        secret = chance.choice([account["secretKey"]] * 5 + ["wrong-secret"])
        decided = []
        for _, broker in (java, ours):
            with Client(credentials=KEEPER) as client:
                answer = client.request(broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)
                assert answer.code == 0, answer
            with Client(credentials=Credentials(account["accessKey"], secret)) as client:
                answers = [client.request(broker, code, fields, b"x") for code, fields in asked]
            decided.append([words_of(answer.remark or "") for answer in answers])
        for question, theirs, own in zip(asked, *decided, strict=True):
            counts[theirs is None] += 1
            several = question[0] in (RequestCode.PULL_MESSAGE, RequestCode.UPDATE_CONSUMER_OFFSET)
            # Of several missing permissions Apache names the one that its hash table has first.
            same = (theirs is None) == (own is None) if several else theirs == own
            if not same:
                different.append((question, account, theirs, own))
    assert not different, f"{len(different)} of {sum(counts)}: {different[:3]}"
    assert min(counts) > 50, counts


def mqadmin(*words: str) -> str:
    """Run a command of mqadmin that signs for the administrator."""
    home = temporary_directory("tools")
    (home / "conf").mkdir()
    (home / "conf" / "tools.yml").write_text(f"accessKey: keeper7\nsecretKey: {SECRET}\n")
    (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
    process = JavaProcess("mqadmin", VERSION, MAIN_MQADMIN, arguments=list(words), work_dir=home)
    done = subprocess.run(
        process.command(), capture_output=True, text=True, check=False, timeout=90, cwd=home
    )
    return done.stdout + done.stderr


def test_mqadmin_changes_and_shows_accounts(ours: tuple[str, str]) -> None:
    names, broker = ours
    artifacts.require_java()
    text = mqadmin(
        *(
            "updateAclConfig",
            "-n",
            names,
            "-c",
            "DefaultCluster",
            "-a",
            "newcomer",
            "-s",
            "new-secret",
        ),
        *(
            "-i",
            "DENY",
            "-u",
            "SUB",
            "-t",
            "t1=PUB|SUB,t2=DENY",
            "-g",
            "g1=SUB",
            "-w",
            "203.0.113.*",
        ),
    )
    assert f"update access config to {broker} success" in text or "success" in text, text
    text = mqadmin("getAclConfig", "-n", names, "-b", broker)
    for part in ("newcomer", "new-secret", "[t1=PUB|SUB, t2=DENY]", "[g1=SUB]", "203.0.113.*"):
        assert part in text, text
    text = mqadmin("clusterAclConfigVersion", "-n", names, "-c", "DefaultCluster")
    assert "plain_acl.yml" in text, text
    assert "success" in text, text
    addresses = ("-g", "203.0.113.1,198.51.100.*")
    text = mqadmin("updateGlobalWhiteAddr", "-n", names, "-b", broker, *addresses)
    assert "success" in text, text
    assert "[203.0.113.1, 198.51.100.*]" in mqadmin("getAclConfig", "-n", names, "-b", broker)
    text = mqadmin("deleteAclConfig", "-n", names, "-b", broker, "-a", "newcomer")
    assert "success" in text, text
    assert "newcomer" not in mqadmin("getAclConfig", "-n", names, "-b", broker)
    text = mqadmin("deleteAclConfig", "-n", names, "-b", broker, "-a", "newcomer")
    assert "CODE: 210" in text, text


def test_files_that_we_wrote_are_those_that_java_reads(ours: tuple[str, str]) -> None:
    _, broker = ours
    account = {"accessKey": "written7", "secretKey": "0x1f: yes '\"", "topicPerms": "orders=PUB"}
    with Client(credentials=KEEPER) as client:
        client.ask(broker, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, account)
        shown = client.ask(broker, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {}).fields
    path = next(iter(json.loads(shown["allAclFileVersion"])))
    with JavaNameServer(VERSION) as names:
        real = JavaBroker(VERSION, names.address, properties={"aclEnable": "true"})
        file = add_accounts(real.work_dir) / "conf" / "plain_acl.yml"
        with open(path, "rb") as written:  # noqa: PTH123 - a path from an answer
            file.write_bytes(written.read())
        with real, Client(credentials=Credentials("written7", account["secretKey"])) as client:
            asked: dict[str, Any] = {"topic": "orders", "queueId": 0}
            answer = client.request(real.address, RequestCode.GET_MAX_OFFSET, asked)
            assert words_of(answer.remark or "") is None, answer
            counter = client.request(real.address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, {})
            assert json.loads(counter.fields["version"])["counter"] > 0


def test_java_clients_work_for_an_account(ours: tuple[str, str]) -> None:
    names, _ = ours
    artifacts.require_java()
    with Admin(name_server=names, credentials=KEEPER) as admin:
        for topic in ("orders", "bills"):
            admin.create_topic(topic)
    account = {"namesrv": names, "accessKey": "kitchen7", "secretKey": COOK_SECRET}
    with Driver(VERSION) as driver:
        driver.call("push.start", id="consumer", group="kitchen", topic="orders", **account)
        driver.call("producer.start", id="producer", group="any", retries=0, **account)
        driver.call("producer.send", id="producer", topic="orders", count=5)
        got = driver.call("push.messages", id="consumer", count=5, timeout=30_000)["messages"]
        assert len(got) >= 5, got
        thief = account | {"secretKey": "wrong-secret"}
        driver.call("producer.start", id="thief", group="others", retries=0, **thief)
        for producer, topic in (("producer", "bills"), ("thief", "orders")):
            with pytest.raises(DriverError) as raised:
                driver.call("producer.send", id=producer, topic=topic, count=1)
            assert raised.value.code == 1
