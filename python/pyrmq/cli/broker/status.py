"""`pyrmq broker status`: health, traffic and resources of all brokers of a cluster.

The rates are the difference of two samples. Exit status 0: every broker answered and takes
messages. Otherwise 1, so the command can serve as a probe.
"""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyrmq import _core
from pyrmq._names import V5_0_0
from pyrmq.cli.arguments import add_name_server, add_watch, parser
from pyrmq.cli.output import clear, counted, span, table, terminal_width
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.config import BROKER_STATUS
from pyrmq.errors import RmqError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

_TIMEOUT = 5.0
_MIB = 1 << 20

Report = dict[str, Any]


def run(words: list[str]) -> int:
    """Run `pyrmq broker status` with these arguments."""
    given = _parser().parse_args(words)
    # After the arguments: `--help` needs none of it.
    from pyrmq.admin import Admin
    from pyrmq.remoting import Client

    wait = threading.Event()
    with Admin(name_server=given.name_server, timeout=_TIMEOUT) as admin, Client() as client:

        def sample() -> tuple[float, dict[str, Report]]:
            members = [
                (broker.name, number, address)
                for brokers in admin.cluster().values()
                for broker in brokers
                for number, address in broker.addresses.items()
                if given.broker in {None, broker.name}
            ]
            # Concurrently: a silent broker must not delay the others' reports.
            with ThreadPoolExecutor(max(1, len(members))) as threads:
                reports = threads.map(lambda member: _report_of(client, *member), members)
                return monotonic(), {report["address"]: report for report in reports}

        before = sample()
        while True:
            wait.wait(given.interval)
            try:
                after = sample()
            except RmqError as error:
                # A restarted name server is back within seconds.
                if not given.watch:
                    raise
                print(f"error: {error}", file=sys.stderr, flush=True)
                continue
            reports = [
                _with_rates(before[1].get(address, {}), report, after[0] - before[0])
                for address, report in after[1].items()
            ]
            _show(reports, given)
            if not given.watch:
                return 0 if reports and all(report["ready"] for report in reports) else 1
            before = after


def _report_of(client: Any, name: str, number: int, address: str) -> Report:  # noqa: ANN401 - Client
    found: Report = {"broker": name, "broker_id": number, "address": address, "ready": False}
    try:
        answer = client.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO, timeout=_TIMEOUT)
        table_: Any = _core.parse_json(answer.body or b"{}")
        runtime: Mapping[str, str] = table_.get("table") or {}
        own = None
        if answer.version >= V5_0_0:
            own = client.request(address, BROKER_STATUS, timeout=_TIMEOUT)
    except RmqError as error:
        return {**found, "error": str(error)}
    found |= {
        "ready": runtime.get("brokerActive", "true") == "true",
        "version": runtime.get("brokerVersionDesc", "").removeprefix("V").replace("_", "."),
        "puts": _number(runtime, "putMessageTimesTotal"),
        "gets": _number(runtime, "getMessageTimesTotal"),
        "disk_ratio": _number(runtime, "commitLogDiskRatio"),
    }
    if own is None or own.code != ResponseCode.SUCCESS:
        return {**found, "note": "not a broker of pyrmq: memory, clients and health are unknown"}
    status: Any = _core.parse_json(own.body or b"{}")
    store = status["store"]
    found |= {
        "pyrmq": status["version"],
        "status": status["status"],
        "uptime_ms": status["uptime_ms"],
        "registered": status["registered"],
        "name_servers": status["name_servers"],
        "producers": status["producers"],
        "consumers": status["consumers"],
        "waiting_pulls": status["waiting_pulls"],
        "memory": status["memory"],
        "descriptors": status["descriptors"],
        "store": store,
    }
    why = store["read_only"] or ("a disk operation failed" if store["has_failed"] else None)
    if why is None and status["registered"] == 0:
        why = "no name server knows it"
    found["ready"] = found["ready"] and why is None and status["status"] == "running"
    # It serves nevertheless.
    why = why or store.get("damage") or out_of_date(status)
    return found if why is None else {**found, "error": why}


def _number(runtime: Mapping[str, str], key: str) -> float:
    try:
        return float(runtime.get(key, "0"))
    except ValueError:
        return 0.0


def out_of_date(status: Report) -> str | None:
    """Say that the list of revoked certificates is out of date; None if it is not."""
    if not status.get("revoked_certificates", {}).get("out_of_date"):
        return None
    return "its list of revoked certificates is out of date: later revocations do not count"


def _with_rates(before: Report, after: Report, passed: float) -> Report:
    for kind in ("puts", "gets"):
        # A restarted broker counts from zero again.
        if kind in after and kind in before and after[kind] >= before[kind] and passed > 0:
            after[f"{kind}_per_second"] = round((after[kind] - before[kind]) / passed, 1)
    return after


def _show(reports: list[Report], given: argparse.Namespace) -> None:
    if given.json:
        for report in reports:
            print(json.dumps(report), flush=True)
        return
    if given.watch:
        clear()
    if not reports:
        named = "" if given.broker is None else f" named {given.broker}"
        print(f"no broker{named} is registered at {given.name_server}", flush=True)
        return
    headers = ["broker", "id", "address", "state", "puts/s", "gets/s", "disk", "memory", "clients"]
    rows = [
        [
            report["broker"],
            report["broker_id"],
            report["address"],
            "ready" if report["ready"] else "NOT READY",
            report.get("puts_per_second"),
            report.get("gets_per_second"),
            f"{100 * report['disk_ratio']:.0f} %" if "disk_ratio" in report else None,
            _memory(report),
            report["producers"] + report["consumers"] if "producers" in report else None,
        ]
        for report in reports
    ]
    lines = table(headers, rows, terminal_width())
    for report in reports:
        lines += _details(report)
    print("\n".join(lines), flush=True)


def _memory(report: Report) -> str | None:
    resident = report.get("memory", {}).get("resident_bytes")
    return None if resident is None else f"{resident // _MIB} MiB"


def _details(report: Report) -> list[str]:
    lines = ["", f"{report['broker']} ({report['address']})"]
    if "error" in report:
        lines.append(f"  {report['error']}")
    if "note" in report:
        lines.append(f"  {report['note']}, version {report['version']}")
    if "store" not in report:
        return lines
    store, held = report["store"], report["descriptors"]
    parts = [
        f"pyrmq {report['pyrmq']}",
        f"up {span(report['uptime_ms'] / 1000)}",
        f"at {report['registered']} of {counted(report['name_servers'], 'name server')}",
        counted(report["producers"], "producer"),
        counted(report["consumers"], "consumer"),
        counted(report["waiting_pulls"], "waiting pull"),
    ]
    lines.append("  " + ", ".join(parts))
    parts = [
        f"log {(store['max_physical_offset'] - store['min_physical_offset']) // _MIB} MiB",
        counted(store["queues"], "queue"),
        f"{store['disk_free_bytes'] // _MIB} MiB free",
        f"{store['busy']['waited']} sends waited, {store['busy']['overload']} refused as busy",
        f"{held['connections']} connections, {held['refused']} refused",
    ]
    return [*lines, "  " + ", ".join(parts)]


def _parser() -> argparse.ArgumentParser:
    made = parser("broker status", "Show the health and traffic of the brokers of a cluster.")
    add_name_server(made)
    made.add_argument("--broker", metavar="NAME", help="only the broker with this name")
    add_watch(made)
    return made
