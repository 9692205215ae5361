"""Topics as tables: all at once, batch by batch, or as messages arrive."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pyrmq._tables.batch import planned
from pyrmq._tables.brokers.remote import RemoteCluster
from pyrmq._tables.options.security import GivenSecurity
from pyrmq._tables.options.topic_options import Options
from pyrmq._tables.planning.progress import Progress
from pyrmq._tables.worker import Part, batches
from pyrmq.arrow.arguments import moment, schema_of
from pyrmq.arrow.progress import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pyrmq._client.security.credentials import Credentials
    from pyrmq._client.security.tls import Tls
    from pyrmq._tables.planning.plan import Range

__all__ = ["follow", "read", "scan"]


def read(
    topic: str,
    *,
    name_server: str | None = None,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    columns: Sequence[str] | None = None,
    tags: str = "*",
    limit: int = 0,
    timeout: float = 30.0,
    brokers: Sequence[str] = (),
    progress: bool = True,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
) -> pa.Table:
    """Read a topic as a table.

    Args:
        topic: topic.
        name_server: ``host:port;host:port``; without it NAMESRV_ADDR.
        since: only messages stored since: a time ago (``"1h"``, ``"30m"``, ``"7d"``), ISO 8601 with
            a zone, a datetime with a zone, or milliseconds since 1970. None: the earliest.
        until: only messages stored before. None: those that exist now.
        columns: those of docs/spark.md; only they are fetched into memory. None: the default ones.
        tags: ``A || B``, filtered by the broker.
        limit: maximum number of rows; 0: all.
        timeout: seconds to wait for a broker that does not answer.
        brokers: names of brokers that must answer. A name server forgets a broker that is down; if
            it is not named here, it is left out with its messages.
        progress: show the progress of a read of more than a second, if standard error is a
            terminal.
        credentials: the user, as for all clients; without it PYRMQ_CREDENTIALS.
        tls: how to connect, as for all clients; without it the credentials or PYRMQ_TLS decide.

    Raises:
        TopicNotFound: the topic does not exist.
        BrokerAway: a broker of the topic does not answer, or one of `brokers` is in no route.
        SchemaError: an unknown column.
        ConfigError: a time that cannot be read, or no name server.

    Example:
        >>> read("orders", since="1h", columns=["tags", "body"]).to_pandas()  # doctest: +SKIP
    """
    return scan(
        topic,
        name_server=name_server,
        since=since,
        until=until,
        columns=columns,
        tags=tags,
        limit=limit,
        timeout=timeout,
        brokers=brokers,
        progress=progress,
        credentials=credentials,
        tls=tls,
    ).read_all()


def scan(
    topic: str,
    *,
    name_server: str | None = None,
    since: str | datetime | int | None = None,
    until: str | datetime | int | None = None,
    columns: Sequence[str] | None = None,
    tags: str = "*",
    limit: int = 0,
    timeout: float = 30.0,
    brokers: Sequence[str] = (),
    progress: bool = False,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
) -> pa.RecordBatchReader:
    """Read a topic batch by batch; arguments and errors as `read`.

    The range is fixed when this is called. Messages are fetched as batches are taken.

    Example:
        >>> duckdb.sql("select tags, count(*) from orders group by tags")  # doctest: +SKIP
    """
    given = {
        **_common(topic, name_server, tags, timeout),
        "limit": str(limit),
        "brokers": ",".join(brokers),
        **moment("startingTimestamp", since),
        **moment("endingTimestamp", until),
    }
    options = _options(given, credentials, tls, batch=True)
    schema = schema_of(columns)
    tasks, addresses = planned(options)
    parts = _parts([part for task in tasks for part in task], addresses)
    rows = batches(options, schema, parts, away_ms=options.timeout_ms, limit=limit)
    if progress:
        rows = shown(rows, sum(part.range.rows for part in parts))
    return pa.RecordBatchReader.from_batches(schema, rows)


def follow(
    topic: str,
    *,
    name_server: str | None = None,
    since: str | datetime | int | None = None,
    columns: Sequence[str] | None = None,
    tags: str = "*",
    timeout: float = 30.0,
    credentials: Credentials | None = None,
    tls: Tls | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a topic as messages arrive, without end.

    The start is fixed when this is called: messages sent after the call are yielded even if the
    first batch is taken later.

    Args:
        topic: topic.
        name_server: as for `read`.
        since: as for `read`. None: messages that arrive from now on.
        columns: as for `read`.
        tags: as for `read`.
        timeout: seconds after which a queue that is shorter than before counts as lost. A broker
            may be away for ten minutes.
        credentials: as for `read`.
        tls: as for `read`.

    Raises:
        DataLossError: messages were deleted before they were read.
        BrokerAway: a broker did not answer for longer.

    Example:
        >>> for batch in follow("orders", columns=["body"]):  # doctest: +SKIP
        ...     print(batch.num_rows)
    """
    given = {**_common(topic, name_server, tags, timeout), **moment("startingTimestamp", since)}
    options = _options(given, credentials, tls, batch=False)
    schema = schema_of(columns)
    cluster = RemoteCluster(options)
    try:
        progress = Progress(options, cluster)
        at = progress.initial()
    except BaseException:
        cluster.close()
        raise
    return _followed(options, schema, cluster, progress, at)


def _followed(
    options: Options,
    schema: pa.Schema,
    cluster: RemoteCluster,
    progress: Progress,
    at: dict[str, Any],
) -> Iterator[pa.RecordBatch]:
    try:
        while True:
            end = progress.latest(at, limit=options.max_offsets_per_trigger)
            ranges = [part for task in progress.tasks(at, end) for part in task]
            parts = _parts(ranges, cluster.addresses())
            yield from batches(options, schema, parts, away_ms=options.away_ms)
            at = end
    finally:
        cluster.close()


def _common(topic: str, name_server: str | None, tags: str, timeout: float) -> dict[str, str]:
    given = {"topic": topic, "tags": tags, "timeoutMs": str(round(timeout * 1000))}
    return given if name_server is None else {**given, "nameServer": name_server}


def _options(
    given: dict[str, str], credentials: Credentials | None, tls: Tls | None, *, batch: bool
) -> Options:
    options = Options.parse(given, batch=batch)
    if credentials is None and tls is None:
        return options
    return replace(options, security=GivenSecurity(credentials, tls))


def _parts(ranges: Sequence[Range], addresses: dict[str, str]) -> list[Part]:
    return [Part(addresses[part.queue.broker], part) for part in ranges]
