"""The table of checks, each with a name, a cause and a fix."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pyrmq._client.values import name_servers
from pyrmq.doctor import probes
from pyrmq.doctor.facts import Facts, Query, collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["CHECKS", "Check", "Finding", "examine"]

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem.

    Attributes:
        check: Name of the check that found it.
        level: `error`: something does not work. `warning`: it works, but may fail later.
        cause: What is wrong, and where.
        fix: What to do.
    """

    check: str
    level: Level
    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class Check:
    """A check.

    Attributes:
        name: Short name.
        level: Its severity.
        cause: Text of the cause; `{names}` are filled in by the probe.
        fix: Text of the fix, likewise.
        probe: Yields the values for one finding each.
    """

    name: str
    level: Level
    cause: str
    fix: str
    probe: Callable[[Facts], Iterator[Mapping[str, object]]]


CHECKS: Sequence[Check] = (
    Check(
        "name-server-name",
        "error",
        "name server {address}: {detail}",
        "correct the name server's address, or add the name to DNS or the hosts file",
        probes.name_server_ended("address", "name"),
    ),
    Check(
        "name-server-port",
        "error",
        "name server {address}: {detail}",
        "start it (`pyrmq nameserver`), or correct its port (9876 is the default)",
        probes.name_server_ended("connection", "silence"),
    ),
    Check(
        "name-server-protocol",
        "error",
        "name server {address}: {detail}",
        "connect to the name server itself: a proxy on the way must pass TCP through unchanged",
        probes.name_server_ended("protocol"),
    ),
    Check(
        "name-server-refused",
        "error",
        "name server {address} answered code {code}: {detail}",
        "check that {address} is a name server, not a broker, and that it is ready",
        probes.name_server_refused,
    ),
    Check(
        "name-servers-disagree",
        "error",
        "name servers disagree: {missing} does not know broker {broker} at {address}, {knows} does",
        "give the broker all name servers (`namesrvAddr`), and check that it reaches {missing}",
        probes.name_servers_disagree,
    ),
    Check(
        "no-broker",
        "error",
        "no broker is registered at {address}",
        "start one (`pyrmq broker -n {address}`), or correct its `namesrvAddr`",
        probes.no_broker,
    ),
    Check(
        "broker-address",
        "error",
        "broker {name} advertises {address}, {why}",
        "set `brokerIP1` to an address that clients reach",
        probes.broker_address,
    ),
    Check(
        "broker-gone",
        "error",
        "{title}: {detail}; the name server still gives this address to clients",
        "start the broker again; a name server forgets a dead one by itself after 2 minutes. If it "
        "runs, set `brokerIP1` and `listenPort` to what clients reach",
        probes.broker_gone,
    ),
    Check(
        "broker-lost",
        "error",
        "broker {broker} ({address}) ended {seconds} s ago without unregistering, and did not come "
        "back: its messages cannot be read",
        "start the broker again on its store; its log says why it ended. A name server forgets it "
        "after a day, or when it starts again",
        probes.broker_lost,
    ),
    Check(
        "broker-protocol",
        "error",
        "{title}: {detail}",
        "let clients reach the broker itself: a proxy on the way must pass TCP through unchanged",
        probes.broker_protocol,
    ),
    Check(
        "broker-identity",
        "error",
        "two brokers are registered as {name} with id {number}: {address} and {other}",
        "give one of them another `brokerName`, or another `brokerId` if it is a slave",
        probes.two_with_one_identity,
    ),
    Check(
        "broker-permission",
        "error",
        "{title} allows no {what}: its `brokerPermission` is {permission}",
        "`mqadmin updateBrokerConfig -b {address} -k brokerPermission -v 6`, or "
        "`mqadmin addWritePerm` if the write permission was removed at the name server",
        probes.broker_permission,
    ),
    Check(
        "broker-read-only",
        "error",
        "{title} accepts no messages: {why}",
        "read its log for the failed call; after the disk is repaired, restart the broker",
        probes.broker_read_only,
    ),
    Check(
        "broker-disk",
        "error",
        "{title}: {left}",
        "free space on {path}, or lower `fileReservedTime` to delete old messages earlier",
        probes.broker_disk,
    ),
    Check(
        "broker-descriptors",
        "error",
        "{title} may open {limit} files, of which its store needs {reserved}{refused}",
        "raise the limit: `ulimit -n 65536`, or `LimitNOFILE=65536` in its systemd unit",
        probes.broker_descriptors,
    ),
    Check(
        "server-hangs",
        "warning",
        "{title} does not answer each request, so not every check was made: {detail}",
        "read its log, and see whether its processors or its disk are overloaded",
        probes.server_hangs,
    ),
    Check(
        "clock",
        "warning",
        "the clock of {title} is {seconds} s {direction} this machine's",
        "synchronise the clocks (chrony, systemd-timesyncd): delays, retention and searches by "
        "time go by them",
        probes.clock,
    ),
    Check(
        "broker-version",
        "warning",
        "{title} is Apache RocketMQ {version}",
        "upgrade it to 4.6 or later: earlier versions are not supported",
        probes.broker_version,
    ),
    Check(
        "broker-memory",
        "warning",
        "{title} uses {used} MiB of the {limit} MiB that its container may use",
        "raise the container's memory limit",
        probes.broker_memory,
    ),
    Check(
        "revoked-certificates",
        "warning",
        "{title}: its list of revoked certificates is past its next update, so certificates "
        "revoked since are trusted",
        "put the authority's newest list into the file of tls.server.crlPath, which is read again "
        "when it changes, and renew it before each next update",
        probes.revoked_certificates,
    ),
    Check(
        "broker-file-system",
        "warning",
        "{title} keeps its store on {kind}, {why}",
        "set `storePathRootDir` to a directory on a local disk",
        probes.broker_file_system,
    ),
    Check(
        "open-broker",
        "warning",
        "{title} accepts connections from other machines and checks no users: all of them may do "
        "everything",
        "set `authenticationEnabled` and `authorizationEnabled` (`pyrmq secure init` makes the "
        "files), or `bindAddress` to an address that strangers do not reach",
        probes.open_broker,
    ),
    Check(
        "open-name-server",
        "warning",
        "name server {address} accepts connections from other machines and checks no users: "
        "everybody there may do everything",
        "set `authenticationEnabled` and `authorizationEnabled` (`pyrmq secure init` makes the "
        "files), or `bindAddress` to an address that strangers do not reach",
        probes.open_name_server,
    ),
    Check(
        "topic-missing",
        "error",
        "topic {topic} does not exist",
        "create it: `pyrmq topic create {topic}`",
        probes.topic_missing,
    ),
    Check(
        "topic-permission",
        "error",
        "topic {topic} has no queue to {what}: {rights}",
        "`pyrmq topic create {topic} --perm 6` sets its rights; see `pyrmq topic describe {topic}`",
        probes.topic_permission,
    ),
    Check(
        "group-subscriptions",
        "error",
        "members of group {group} read different things: {first} reads {one}, {second} reads {two}",
        "all members of a group must have the same topics and filters: stop the wrong ones, or "
        "give them another group",
        probes.group_subscriptions,
    ),
)


def examine(
    name_server: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    timeout: float = 3.0,
    report: Callable[[str], object] = lambda _: None,
) -> list[Finding]:
    """Run all :data:`CHECKS`; errors come first.

    Args:
        name_server: `host:port;host:port`, or a sequence of `host:port`; without it the
            environment variable `NAMESRV_ADDR` is read.
        topic: Also check this topic.
        group: Also check this consumer group.
        timeout: Seconds for each request. All servers are asked at the same time, and a server
            that hangs is given up after 4.5 s in all (or `timeout`, if that is more).
        report: Called in this thread with a text for each step: the server that is waited for, then
            the check that runs. Servers' names are in it as they sent them.

    Returns:
        The problems; empty for a healthy cluster.

    Raises:
        ConfigError: No name server is given.

    Example:
        >>> examine("127.0.0.1:9876")  # doctest: +SKIP
        [Finding(check='name-server-port', level='error', ...)]
    """
    facts = collect(Query(name_servers(name_server), topic, group, timeout), report)
    found: defaultdict[Level, list[Finding]] = defaultdict(list)
    for number, check in enumerate(CHECKS, 1):
        report(f"check {number} of {len(CHECKS)}: {check.name}")
        for values in check.probe(facts):
            cause, fix = check.cause.format_map(values), check.fix.format_map(values)
            found[check.level].append(Finding(check.name, check.level, cause, fix))
    return found["error"] + found["warning"]
