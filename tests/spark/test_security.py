"""Reads, writes, streams and pipelines through TLS and with users, and what Spark shows of it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa

from pyrmq import Admin, Credentials, Producer, RmqError, Tls, arrow
from pyrmq.pipeline import load, run
from pyrmq.server.security.directory import make_secure, secure_values
from tests.e2e.pairs import Pair
from tests.spark.test_elsewhere import environment, ran

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore"),
]
TOPICS = ("secured", "copied", "streamed", "piped", "rejected", "arrows")


class Secured(Pair):
    """A cluster that takes TLS alone and checks users, and the files of its directory."""

    def __init__(self, directory: Path) -> None:
        self.files = directory / "secure"
        make_secure(self.files)
        super().__init__(directory, **secure_values(self.files))

    def user(self, name: str) -> Credentials:
        """Return the credentials of one of the users."""
        return Credentials.from_file(self.files / f"{name}.toml")

    def by_file(self) -> dict[str, str]:
        """Return the options of a user whose file names the authority, too."""
        return {"nameServer": self.address, "credentials": str(self.files / "app.toml")}

    def by_secret(self) -> dict[str, str]:
        """Return options that name the user and its secret."""
        import tomllib

        user = tomllib.loads((self.files / "app.toml").read_text())
        return {
            "nameServer": self.address,
            "accessKey": user["accessKey"],
            "secretKey": user["secretKey"],
            "tls.trust": str(self.files / "ca.pem"),
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    cluster = Secured(tmp_path_factory.mktemp("secured"))
    with Admin(name_server=cluster.address, credentials=cluster.user("admin")) as admin:
        for topic in TOPICS:
            admin.create_topic(topic, queues=2)
    with Producer(name_server=cluster.address, credentials=cluster.user("app")) as producer:
        producer.send_batch("secured", [b"%d" % number for number in range(20)])
    yield cluster
    cluster.stop()


def read(spark: SparkSession, topic: str, options: dict[str, str]) -> DataFrame:
    return spark.read.format("rocketmq").options(topic=topic, timeoutMs="5000", **options).load()


def bodies(frame: DataFrame) -> list[int]:
    return sorted(int(row[0]) for row in frame.selectExpr("cast(body as string)").collect())


def plans(spark: SparkSession) -> str:
    """Return what Spark's UI shows of all queries of the session: plans with their options."""
    state: Any = spark._jsparkSession.sharedState()
    shown = state.statusStore().executionsList()
    texts = (shown.apply(at) for at in range(shown.size()))
    return "\n".join(f"{one.physicalPlanDescription()} {one.details()}" for one in texts)


@pytest.mark.parametrize("way", ["by_file", "by_secret"])
def test_a_user_reads_and_writes_through_tls(
    spark: SparkSession, secured: Secured, way: str
) -> None:
    options = getattr(secured, way)()
    frame = read(spark, "secured", options)
    assert bodies(frame) == [*range(20)]
    before = read(spark, "copied", options).count()
    for delivery in ("at-least-once", "exactly-once"):
        frame.select("body").write.format("rocketmq").mode("append").options(
            topic="copied", delivery=delivery, **options
        ).save()
    assert read(spark, "copied", options).count() == before + 40


def test_a_stream_goes_through_tls_from_topic_to_topic(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    options = secured.by_secret()
    stream = spark.readStream.format("rocketmq").options(
        topic="secured", startingOffsets="earliest", group="readers", commitToGroup="true"
    )
    writer = stream.options(**options).load().select("body").writeStream.format("rocketmq")
    writer = writer.options(topic="streamed", delivery="exactly-once", **options)
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert bodies(read(spark, "streamed", options)) == [*range(20)]
    # The checkpoint is a file that others may read.
    secret = options["secretKey"].encode()
    assert not [
        path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()
    ]


def test_arrow_reads_follows_and_sends_in_a_users_name(secured: Secured) -> None:
    given: dict[str, Any] = {"name_server": secured.address, "credentials": secured.user("app")}
    assert arrow.read("secured", columns=["body"], **given).num_rows == 20
    followed = arrow.follow("arrows", columns=["body"], **given)
    assert arrow.send(pa.table({"body": ["a", "b", "c"]}), "arrows", **given) == 3
    rows = 0
    while rows < 3:
        rows += next(followed).num_rows
    followed.close()  # type: ignore[attr-defined]
    options = secured.by_secret()
    user = Credentials(options["accessKey"], options["secretKey"])
    given |= {"credentials": user, "tls": Tls(options["tls.trust"])}
    assert arrow.read("arrows", since="1h", **given).num_rows == 3
    for credentials, tls in ((None, Tls(options["tls.trust"])), (user, None)):
        with pytest.raises(RmqError):
            arrow.read(
                "arrows", name_server=secured.address, timeout=5, credentials=credentials, tls=tls
            )


@pytest.mark.nightly
def test_executors_read_the_variable_of_their_own_environment(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    """Its executors are processes of their own; the driver's variable names another file."""
    right = tmp_path / "executor-secret.toml"
    text = (secured.files / "app.toml").read_text()
    right.write_text(text.replace('"ca.pem"', f'"{secured.files / "ca.pem"}"'))
    before = read(spark, "copied", secured.by_file()).count()
    wrong = tmp_path / "wrong-secret.toml"
    wrong.write_text(right.read_text().replace('secretKey = "', 'secretKey = "not-'))
    for file in (right, wrong):
        file.chmod(0o600)
    program = [sys.executable, "-m", "tests.spark.environment_driver", secured.address]
    driver = environment(PYRMQ_CREDENTIALS=str(secured.files / "app.toml"))
    shown = ran([*program, str(right), str(wrong)], driver)
    good, bad = (json.loads(line) for line in shown.splitlines() if line.startswith("{"))
    assert good == {"rows": [*range(20)]}
    assert "authentication failed" in bad["error"]
    assert "rows" not in bad
    assert read(spark, "copied", secured.by_file()).count() == before + 20


def test_no_plan_shows_the_secret(spark: SparkSession, secured: Secured) -> None:
    options = secured.by_secret()
    frame = read(spark, "secured", options)
    frame.select("body").write.format("rocketmq").mode("append").options(
        topic="copied", **options
    ).save()
    explained = frame._jdf.queryExecution().toString()
    for text in (explained, plans(spark)):
        assert "rocketmq" in text
        assert options["secretKey"] not in text


def test_a_wrong_secret_and_a_missing_authority_fail_the_read(
    spark: SparkSession, secured: Secured
) -> None:
    good = secured.by_secret()
    wrong = good | {"secretKey": "not-the-secret-of-app"}
    with pytest.raises(Exception, match="authentication failed") as raised:
        read(spark, "secured", wrong).count()
    assert wrong["secretKey"] not in str(raised.value)
    unsigned = {name: text for name, text in good.items() if not name.endswith("Key")}
    with pytest.raises(Exception, match="authentication failed"):
        read(spark, "secured", unsigned).count()
    with pytest.raises(Exception, match="authority that is not trusted"):
        read(spark, "secured", good | {"tls.trust": "", "tls": "true"}).count()


def test_a_pipelines_sink_and_rejected_rows_go_the_way_of_its_source(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    file = tmp_path / "copy.toml"
    options = "\n".join(f'"{name}" = "{text}"' for name, text in secured.by_file().items())
    file.write_text(
        f'[source]\ntopic = "secured"\nbatch = true\n{options}\n'
        '[[step]]\nsql = "SELECT body FROM input"\n'
        '[quality]\nwhere = "cast(cast(body as string) as int) < 15"\nreject = "rejected"\n'
        '[sink]\nformat = "topic"\ntopic = "piped"\n'
    )
    report = run(spark, load(file))
    assert report.error is None
    assert bodies(read(spark, "piped", secured.by_file())) == [*range(15)]
    assert read(spark, "rejected", secured.by_file()).count() == 5
