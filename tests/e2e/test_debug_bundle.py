"""`pyrmq debug bundle`: everything that a report needs, and no body or secret."""

from __future__ import annotations

import json
import tarfile
from typing import TYPE_CHECKING

from tests.e2e.test_security import BOB_PASSWORD, ROOT_PASSWORD, Secured
from tests.secret_search import planted, used

from pyrmq import Admin, Producer, QueueId
from pyrmq.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from pyrmq.testing import Cluster

BODY = "the-body-of-a-message-5187"
SECRETS = ("key-in-a-file-6133", "token-of-the-environment-4419", "password-in-a-conf-8256")


def contents(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        found = {}
        for member in opened.getmembers():
            file = opened.extractfile(member)
            assert file is not None
            found[member.name.partition("/")[2]] = file.read().decode()
    return found


def test_a_bundle_has_what_a_report_needs_and_no_secret(
    shared: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Admin(name_server=shared.name_server) as admin:
        admin.create_topic(topic, queues=1)
    with Producer(name_server=shared.name_server) as producer:
        for broker in shared.brokers:
            producer.send(topic, BODY, queue=QueueId(topic, broker.name, 0))
        producer.send(topic, BODY, keys="order-1")
    credentials = tmp_path / "alice.toml"
    credentials.write_text(f'accessKey = "alice-2209"\nsecretKey = "{SECRETS[0]}"\n')
    credentials.chmod(0o600)
    monkeypatch.setenv("PYRMQ_CREDENTIALS", str(credentials))
    monkeypatch.setenv("PYRMQ_TEST_TOKEN", SECRETS[1])
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=broker-a\ninnerClientPassword = {SECRETS[2]}\nlistenPort=10911\n")
    for secret in SECRETS:
        used(secret)
    log = planted(tmp_path / "broker.log")
    log.write_text(f'started\nfailed with {SECRETS[0]}\n{{"secretKey": "json-1"}} token=plain-2\n')
    json_log = tmp_path / "app.json"
    json_log.write_text('{"level": "INFO"}\n{"msg": "{\\"password\\": \\"json-3\\"}"}\n')
    archive = tmp_path / "bundle.tar.gz"
    words = ["debug", "bundle", str(archive), "-n", shared.name_server]
    words += ["--store", str(shared.store), "--config", str(conf), "--log", str(log)]
    words += ["--log", str(json_log)]
    assert main(words) == 0
    assert archive.stat().st_mode & 0o777 == 0o600
    found = contents(archive)
    everything = "\n".join(found.values())
    for secret in (*SECRETS, "alice-2209", BODY, "json-1", "plain-2", "json-3"):
        assert secret not in everything
    assert "listenPort=10911" in found["config/0-broker.conf"]
    assert found["logs/0-broker.log"].startswith("started\n")
    assert found["logs/1-app.json"].startswith('{"level": "INFO"}\n')
    brokers = json.loads(found["brokers.json"])
    assert [one["broker"] for one in brokers] == ["broker-a", "broker-b"]
    assert brokers[0]["config"]["flushDiskType"] == "ASYNC_FLUSH"
    assert brokers[0]["status"]["store"]["read_only"] is None
    tables = json.loads(found["topics-and-groups.json"]).values()
    assert any(topic in table["topics"]["topicConfigTable"] for table in tables)
    names = [file[0] for file in json.loads(found["store.json"])["files"]]
    assert "config/topics.json" in names
    assert any(name.startswith("commitlog/") for name in names)
    about = json.loads(found["about.json"])
    assert about["packages"]["pyrmq-rocketmq"]
    assert json.loads(found["doctor.json"]) is not None


def test_a_bundle_without_a_cluster_says_what_was_seen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "bundle.tar.gz"
    words = ["debug", "bundle", str(archive), "-n", "127.0.0.1:1", "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(archive)
    found = contents(archive)
    assert json.loads(found["doctor.json"])[0]["check"] == "name-server-port"
    assert json.loads(found["brokers.json"]) == []
    assert main(words) == 2
    assert "exists already" in capsys.readouterr().err


def test_no_secret_of_a_cluster_with_users_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secured = Secured(tmp_path)
    archive = tmp_path / "bundle.tar.gz"
    words = ["debug", "bundle", str(archive), "-n", secured.address]
    words += ["--store", str(tmp_path / "store1"), "--config", str(secured.files[1])]
    try:
        monkeypatch.setenv("PYRMQ_CREDENTIALS", str(secured.root_file))
        assert main(words) == 0
    finally:
        secured.stop()
    found = contents(archive)
    assert len(json.loads(found["brokers.json"])) == 2
    assert json.loads(found["brokers.json"])[0]["config"]["authenticationEnabled"] == "true"
    everything = "\n".join(found.values())
    for secret in (ROOT_PASSWORD, BOB_PASSWORD, "eve-pass"):
        assert secret not in everything
