"""`pyrmq nameserver status`: health of name servers, registered brokers, and request rates.

The rates are the difference of two samples. Exit status 0: every name server answered and is
ready. Otherwise 1, so the command can serve as a probe.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._client.security.effective import native_security
from pyrmq._names import V5_0_0
from pyrmq.cli.arguments import add_name_server, add_watch, parser
from pyrmq.cli.output import clear, counted, span, table, terminal_width
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import NAME_SERVER_STATUS
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

_TIMEOUT_MS = 5000
Report = dict[str, Any]


def run(words: list[str]) -> int:
    """Run `pyrmq nameserver status` with these arguments."""
    given = _parser().parse_args(words)
    addresses = [part.strip() for part in given.name_server.split(";") if part.strip()]
    connections = _core.Connections(**native_security(None, None))
    wait = threading.Event()
    try:
        before = [_report_of(connections, address) for address in addresses]
        while True:
            wait.wait(given.interval)
            after = [_report_of(connections, address) for address in addresses]
            reports = [_rates(first, then) for first, then in zip(before, after, strict=True)]
            _show(reports, given)
            if not given.watch:
                return 0 if all(report["ready"] for report in reports) else 1
            before = after
    finally:
        connections.close()


def _report_of(connections: _core.Connections, address: str) -> Report:
    try:
        # For the version, which every answer has.
        anything = _core.Command(RequestCode.GET_KV_CONFIG, {"namespace": "x", "key": "x"}, None)
        known = connections.request(address, anything, _TIMEOUT_MS)
        if known.version < V5_0_0:
            return _of_another_kind(connections, address)
        answer = connections.request(
            address, _core.Command(NAME_SERVER_STATUS, {}, None), _TIMEOUT_MS
        )
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return _of_another_kind(connections, address)
        if answer.code != 0:
            return _silent(address, f"code {answer.code}: {answer.remark}")
        report: Report = _core.parse_json(answer.body or b"{}")  # type: ignore[assignment]
    except RmqError as error:
        return _silent(address, str(error))
    return {**report, "address": address}


def _of_another_kind(connections: _core.Connections, address: str) -> Report:
    """Report on Apache's name server, which only lists its brokers."""
    command = _core.Command(RequestCode.GET_BROKER_CLUSTER_INFO, {}, None)
    answer = connections.request(address, command, _TIMEOUT_MS)
    info: Any = _core.parse_json(answer.body or b"{}")
    brokers = [
        {
            "cluster": data.get("cluster", ""),
            "name": name,
            "broker_id": int(key),
            "address": at,
        }
        for name, data in sorted((info.get("brokerAddrTable") or {}).items())
        for key, at in sorted(data.get("brokerAddrs", {}).items(), key=lambda pair: int(pair[0]))
    ]
    note = "not a name server of pyrmq: it only lists its brokers"
    return {
        "address": address,
        "ready": True,
        "status": "running",
        "brokers": brokers,
        "note": note,
    }


def _silent(address: str, why: str) -> Report:
    return {"address": address, "ready": False, "status": "unreachable", "error": why}


def _rates(before: Report, after: Report) -> Report:
    """A report with the rates since the previous one."""
    if "latencies" not in after:
        return after
    known = before.get("latencies")
    seconds = (after["uptime_ms"] - before.get("uptime_ms", 0)) / 1000
    if known is None or seconds <= 0:
        # It did not answer, or it was restarted and counts from 0.
        known, before, seconds = {}, {"counters": {}}, max(0.001, after["uptime_ms"] / 1000)
    kinds = {}
    for kind, now in after["latencies"].items():
        was = known.get(kind, {"buckets": [0] * len(now["buckets"])})["buckets"]
        new = [one - other for one, other in zip(now["buckets"], was, strict=True)]
        kinds[kind] = {
            "total": sum(now["buckets"]),
            "per_second": round(sum(new) / seconds, 1),
            # Of the interval, or of all requests if the interval had none.
            "p50_ms": quantile(new if any(new) else now["buckets"], 0.5),
            "p99_ms": quantile(new if any(new) else now["buckets"], 0.99),
        }
    requests = after["counters"]["requests"] - before["counters"].get("requests", 0)
    shown = {key: value for key, value in after.items() if key != "latencies"}
    return {**shown, "requests_per_second": round(requests / seconds, 1), "requests": kinds}


def quantile(buckets: Sequence[int], share: float) -> float | None:
    """Compute a quantile in milliseconds from counts by duration; None without counts.

    Args:
        buckets: how many took up to 1, 2, 4 ... microseconds; the last has no upper bound.
        share: which quantile, 0 to 1.

    Example:
        >>> quantile([0, 0, 0, 10, 0], 0.5)
        0.006
    """
    total = sum(buckets)
    if not total:
        return None
    left = share * total
    for at, count in enumerate(buckets):
        if count and left <= count:
            low, high = (0 if at == 0 else 1 << (at - 1)), 1 << at
            return round((low + (high - low) * left / count) / 1000, 6)
        left -= count
    return (1 << (len(buckets) - 1)) / 1000


def _show(reports: list[Report], given: argparse.Namespace) -> None:
    if given.json:
        for report in reports:
            print(json.dumps(report), flush=True)
        return
    if given.watch:
        clear()
    print("\n\n".join("\n".join(_lines(report)) for report in reports), flush=True)


def _lines(report: Report) -> list[str]:
    state = "ready" if report["ready"] else f"NOT READY ({report['status']})"
    lines = [f"name server {report['address']}: {state}"]
    width = terminal_width()
    if "error" in report:
        return [*lines, f"  {report['error']}"]
    if "requests" in report:
        counters: Mapping[str, int] = report["counters"]
        lines[0] += f", up {span(report['uptime_ms'] / 1000)}, pyrmq {report['version']}"
        parts = [
            counted(len(report["brokers"]), "broker"),
            counted(report["topics"], "topic"),
            counted(counters["connections"], "connection"),
            f"{report['requests_per_second']} requests/s",
        ]
        lines.append(", ".join(parts))
    if "note" in report:
        lines.append(report["note"])
    headers = ["cluster", "broker", "id", "address", "version", "last heard", "topics"]
    rows = [
        [
            broker["cluster"],
            broker["name"],
            broker["broker_id"],
            broker["address"],
            broker.get("version"),
            f"{broker['silent_seconds']:.1f} s ago" if "silent_seconds" in broker else None,
            broker.get("topics"),
        ]
        for broker in report["brokers"]
    ]
    if rows:
        lines += ["", *table(headers, rows, width)]
    kinds = [
        [kind, seen["total"], seen["per_second"], _ms(seen["p50_ms"]), _ms(seen["p99_ms"])]
        for kind, seen in report.get("requests", {}).items()
        if seen["total"]
    ]
    if kinds:
        headers = ["request", "total", "per second", "p50 ms", "p99 ms"]
        lines += ["", *table(headers, kinds, width)]
    return lines


def _ms(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"


def _parser() -> argparse.ArgumentParser:
    made = parser(
        "nameserver status", "Show the health of name servers and their registered brokers."
    )
    add_name_server(made)
    add_watch(made)
    return made
