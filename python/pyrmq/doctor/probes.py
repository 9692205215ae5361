"""Reads the facts: each function yields the values for the texts of one check, once per problem."""

from __future__ import annotations

import ipaddress
import socket
from itertools import combinations
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._names import PERM_READ, PERM_WRITE, RETRY_PREFIX
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.doctor.network import dial, split
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyrmq.doctor.facts import BrokerFacts, Facts, Member, NameServerFacts

__all__ = [
    "broker_address",
    "broker_descriptors",
    "broker_disk",
    "broker_file_system",
    "broker_gone",
    "broker_lost",
    "broker_memory",
    "broker_permission",
    "broker_protocol",
    "broker_read_only",
    "broker_version",
    "clock",
    "group_subscriptions",
    "name_server_ended",
    "name_server_refused",
    "name_servers_disagree",
    "no_broker",
    "open_broker",
    "open_name_server",
    "revoked_certificates",
    "server_hangs",
    "topic_missing",
    "topic_permission",
    "two_with_one_identity",
]

Values = dict[str, object]

_CLOCK_SECONDS = 5.0
_LOST_MS = 24 * 3600 * 1000
"""How long a lost broker is reported, in ms."""
_DESCRIPTORS = 4096
_MEMORY_SHARE = 0.9
_DISK_RATIO = 0.9
_MIN_FREE = 256 << 20
_REMOTE = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"}


def name_server_ended(*steps: str) -> Callable[[Facts], Iterator[Values]]:
    """Make a probe for name servers where the request ended at one of these steps."""

    def probe(facts: Facts) -> Iterator[Values]:
        for server in facts.name_servers:
            if server.dialed.step in steps:
                yield {"address": server.address, "detail": server.dialed.detail}

    return probe


def name_server_refused(facts: Facts) -> Iterator[Values]:
    """A server that answers, but not as a name server."""
    for server in facts.name_servers:
        answer = server.dialed.answer
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            yield {
                "address": server.address,
                "code": answer.code,
                "detail": answer.remark or "no text",
            }


def _answering(facts: Facts) -> list[NameServerFacts]:
    return [
        server
        for server in facts.name_servers
        if server.dialed.answer is not None and server.dialed.answer.code == ResponseCode.SUCCESS
    ]


def name_servers_disagree(facts: Facts) -> Iterator[Values]:
    """Brokers that one name server knows and another one does not, or elsewhere."""
    servers = _answering(facts)
    places = sorted({place for server in servers for place in server.brokers.items()})
    for (name, number), address in places:
        knowing = [one for one in servers if one.brokers.get((name, number)) == address]
        for server in servers:
            if server not in knowing:
                yield {
                    "missing": server.address,
                    "knows": knowing[0].address,
                    "broker": f"{name} (id {number})",
                    "address": address,
                }


def no_broker(facts: Facts) -> Iterator[Values]:
    """No name server that answers knows any broker."""
    servers = _answering(facts)
    if servers and not any(server.brokers for server in servers):
        yield {"address": servers[0].address}


def broker_address(facts: Facts) -> Iterator[Values]:
    """Advertised addresses that other machines, or all clients, cannot reach."""
    remote = any(not _is_loopback(server.address) for server in _answering(facts))
    for broker in facts.brokers:
        if broker.dialed is None:
            why = "which is in the network of a container on its own machine"
        elif _host(broker.address) in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            why = "which is not an address to connect to"
        elif broker.dialed.step in {"address", "name"}:
            why = f"which does not resolve here: {broker.dialed.detail}"
        elif remote and _is_loopback(broker.address):
            why = "which means the client's own machine"
        else:
            continue
        yield {"name": broker.name, "address": broker.address, "why": why}


def broker_gone(facts: Facts) -> Iterator[Values]:
    """Brokers that name servers list and that cannot be connected to."""
    for broker in facts.brokers:
        if broker.dialed is not None and broker.dialed.step in {"connection", "silence"}:
            yield {"title": broker.title, "detail": broker.dialed.detail}


def server_hangs(facts: Facts) -> Iterator[Values]:
    """Servers that answered the first request and then not each one."""
    servers: list[NameServerFacts | BrokerFacts] = [*facts.name_servers, *facts.brokers]
    for server in servers:
        if server.unanswered:
            yield {"title": server.title, "detail": server.unanswered}


def broker_lost(facts: Facts) -> Iterator[Values]:
    """Brokers that ended without unregistering and did not come back, from pyrmq's name servers."""
    live = {broker.name for broker in facts.brokers}
    seen: set[str] = set()
    for server in facts.name_servers:
        for one in server.status.get("lost_brokers") or ():
            if one["name"] not in live | seen and one["ago_ms"] < _LOST_MS:
                seen.add(one["name"])
                seconds = one["ago_ms"] // 1000
                yield {"broker": one["name"], "address": one["address"], "seconds": seconds}


def broker_protocol(facts: Facts) -> Iterator[Values]:
    """Something else answers at a broker's address."""
    for broker in facts.brokers:
        if broker.dialed is None:
            continue
        answer = broker.dialed.answer
        if broker.dialed.step == "protocol":
            yield {"title": broker.title, "detail": broker.dialed.detail}
        elif answer is not None and answer.code != ResponseCode.SUCCESS:
            detail = f"it answered code {answer.code}: {answer.remark or 'no text'}"
            yield {"title": broker.title, "detail": detail}


def two_with_one_identity(facts: Facts) -> Iterator[Values]:
    """Two live processes with one name and id, of which the name server keeps only one."""
    seen: set[tuple[str, int, str]] = set()
    for server in _answering(facts):
        for broker in server.status.get("brokers") or ():
            name, number = str(broker["name"]), int(broker["broker_id"])
            address, other = str(broker["address"]), broker.get("replaced_address")
            if not other or (name, number, address) in seen:
                continue
            seen.add((name, number, address))
            if _is_alive_as(str(other), name, number, facts.query.timeout):
                yield {"name": name, "number": number, "address": address, "other": other}


def _is_alive_as(address: str, name: str, number: int, timeout: float) -> bool:
    """Say whether a broker with this name and id answers at an address."""
    answer = dial(address, RequestCode.GET_BROKER_CONFIG, timeout).answer
    lines = (answer.body or b"").decode("utf-8", "replace").splitlines() if answer else []
    return {f"brokerName={name}", f"brokerId={number}"} <= set(lines)


def broker_permission(facts: Facts) -> Iterator[Values]:
    """Brokers that forbid reading or writing as a whole."""
    for broker in facts.brokers:
        text = broker.config.get("brokerPermission", "6")
        permission = int(text) if text.isdigit() else 6
        lacking = [
            word
            for bit, word in ((PERM_READ, "reading"), (PERM_WRITE, "writing"))
            if not permission & bit
        ]
        if lacking:
            yield {
                "title": broker.title,
                "address": broker.address,
                "what": " and no ".join(lacking),
                "permission": permission,
            }


def _store(broker: BrokerFacts) -> Mapping[str, Any]:
    store: Any = broker.status.get("store")
    return store if isinstance(store, dict) else {}


def broker_read_only(facts: Facts) -> Iterator[Values]:
    """Stores that turned read-only after a failed call."""
    for broker in facts.brokers:
        store = _store(broker)
        if store.get("read_only"):
            yield {"title": broker.title, "why": f"its store is read-only ({store['read_only']})"}
        elif store.get("has_failed"):
            yield {"title": broker.title, "why": "a disk operation failed"}


def broker_disk(facts: Facts) -> Iterator[Values]:
    """Disks that are full, or nearly."""
    for broker in facts.brokers:
        path = broker.config.get("storePathRootDir", "its disk")
        free = _store(broker).get("disk_free_bytes")
        least = _number(broker.config.get("diskSpaceMinFreeBytes"), _MIN_FREE)
        ratio = _number(broker.runtime.get("commitLogDiskRatio"), 0.0)
        warned = _number(broker.config.get("diskSpaceWarningLevelRatio"), 100 * _DISK_RATIO) / 100
        if free is not None and free <= least:
            left = (
                f"its disk has {free >> 20} MiB left, and it refuses messages below {least:.0f} B"
            )
        elif free is None and ratio >= warned:
            left = f"its disk is {100 * ratio:.0f} % full, and it refuses messages"
        else:
            continue
        yield {"title": broker.title, "left": left, "path": path}


def _number(text: str | None, usual: float) -> float:
    try:
        return usual if text is None else float(text)
    except ValueError:
        return usual


def broker_descriptors(facts: Facts) -> Iterator[Values]:
    """Brokers with few file descriptors, or that refused connections for lack of them."""
    for broker in facts.brokers:
        held: Any = broker.status.get("descriptors")
        if not isinstance(held, dict) or not held.get("limit"):
            continue
        refused = held.get("refused", 0)
        if held["limit"] >= _DESCRIPTORS and not refused:
            continue
        yield {
            "title": broker.title,
            "limit": held["limit"],
            "reserved": held.get("reserved", 0),
            "refused": f"; it refused {refused} connections for lack of them" if refused else "",
        }


def clock(facts: Facts) -> Iterator[Values]:
    """Servers whose clock is off."""
    servers = [(f"name server {one.address}", one.clock_offset) for one in facts.name_servers]
    for title, offset in [*servers, *((one.title, one.clock_offset) for one in facts.brokers)]:
        if offset is not None and abs(offset) >= _CLOCK_SECONDS:
            direction = "ahead of" if offset > 0 else "behind"
            yield {"title": title, "seconds": round(abs(offset)), "direction": direction}


def broker_version(facts: Facts) -> Iterator[Values]:
    """Brokers of versions that are not tested."""
    for broker in facts.brokers:
        text = broker.runtime.get("brokerVersionDesc", "")
        parts = text.removeprefix("V").split("_")
        if len(parts) >= 2 and all(part.isdigit() for part in parts[:2]):
            version = (int(parts[0]), int(parts[1]))
            if version < (4, 6):
                yield {"title": broker.title, "version": ".".join(map(str, version))}


def broker_memory(facts: Facts) -> Iterator[Values]:
    """Brokers close to their container's memory limit."""
    for broker in facts.brokers:
        held: Any = broker.status.get("memory")
        if not isinstance(held, dict) or not held.get("limit_bytes"):
            continue
        if held["resident_bytes"] >= _MEMORY_SHARE * held["limit_bytes"]:
            used, limit = held["resident_bytes"] >> 20, held["limit_bytes"] >> 20
            yield {"title": broker.title, "used": used, "limit": limit}


def revoked_certificates(facts: Facts) -> Iterator[Values]:
    """Lists of revoked certificates that are past their next update."""
    for broker in facts.brokers:
        lists: Any = broker.status.get("revoked_certificates")
        if isinstance(lists, dict) and lists.get("out_of_date"):
            yield {"title": broker.title}


def broker_file_system(facts: Facts) -> Iterator[Values]:
    """Stores on file systems that are not durable or fast enough."""
    for broker in facts.brokers:
        kind = str(broker.status.get("file_system", ""))
        if kind in _REMOTE:
            yield {
                "title": broker.title,
                "kind": kind,
                "why": "a network file system, where locks and fsync may not work",
            }
        elif kind == "tmpfs" and broker.config.get("flushDiskType") == "SYNC_FLUSH":
            yield {
                "title": broker.title,
                "kind": kind,
                "why": "which a reboot empties, despite SYNC_FLUSH",
            }


def open_broker(facts: Facts) -> Iterator[Values]:
    """Brokers that check no users, on addresses that other machines reach."""
    for broker in facts.brokers:
        if _is_open(broker.address, broker.config):
            yield {"title": broker.title}


def open_name_server(facts: Facts) -> Iterator[Values]:
    """Name servers of pyrmq that check no users, on addresses that other machines reach."""
    for server in facts.name_servers:
        # Apache's name server has no users.
        if "authenticationEnabled" in server.config and _is_open(server.address, server.config):
            yield {"address": server.address}


def _is_open(address: str, config: Mapping[str, str]) -> bool:
    """Say whether everybody on another machine may do everything with a server."""
    if not config or _is_loopback(address) or _is_loopback(f"{config.get('bindAddress', '')}:1"):
        return False
    checks = ("aclEnable", "authenticationEnabled", "authorizationEnabled")
    if any(config.get(key) == "true" for key in checks):
        return False
    needs_certificate = config.get("tls.server.need.client.auth") == "require"
    # Apache's broker does not report its mode.
    return not (needs_certificate and config.get("tls.server.mode", "enforcing") == "enforcing")


def topic_missing(facts: Facts) -> Iterator[Values]:
    """The topic is unknown to every name server that answers."""
    routes = [server.route for server in _answering(facts) if server.route is not None]
    if routes and all(route.code == ResponseCode.TOPIC_NOT_EXIST for route in routes):
        yield {"topic": facts.query.topic}


def topic_permission(facts: Facts) -> Iterator[Values]:
    """The topic has no queue to read, or none to write."""
    for server in _answering(facts):
        if server.route is None or server.route.code != ResponseCode.SUCCESS:
            continue
        try:
            parsed: Any = _core.parse_json(server.route.body or b"{}")
        except (RmqError, ValueError):
            continue
        queues = parsed.get("queueDatas") or []
        rights = ", ".join(f"{one.get('brokerName')} has perm {one.get('perm')}" for one in queues)
        for bit, count, what in (
            (PERM_READ, "readQueueNums", "read from"),
            (PERM_WRITE, "writeQueueNums", "write to"),
        ):
            if not any(int(one.get("perm", 0)) & bit and one.get(count) for one in queues):
                yield {"topic": facts.query.topic, "what": what, "rights": rights or "no broker"}
        return


def group_subscriptions(facts: Facts) -> Iterator[Values]:
    """Two members of one group with different subscriptions; one pair is enough."""
    members = [member for member in facts.members if member.subscriptions]
    for first, second in combinations(members, 2):
        one, two = _reads(first), _reads(second)
        if one != two:
            yield {
                "group": facts.query.group,
                "first": first.client_id,
                "second": second.client_id,
                "one": one,
                "two": two,
            }
            return


def _reads(member: Member) -> str:
    pairs = [
        f"{topic} ({expression or '*'})"
        for topic, expression in sorted(member.subscriptions.items())
        if not topic.startswith(RETRY_PREFIX)
    ]
    return ", ".join(pairs) or "nothing"


def _host(address: str) -> str:
    try:
        return split(address)[0]
    except ValueError:
        return address


def _is_loopback(address: str) -> bool:
    """Say whether a `host:port` is this machine's own; names are resolved."""
    host = _host(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None)
    except OSError:
        return False
    return all(ipaddress.ip_address(str(one[4][0])).is_loopback for one in found)
