"""Checks what every executor can use and reach, for ``pyrmq spark doctor``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyrmq
from pyrmq._tables.options.option_values import OptionValues
from pyrmq.admin import Admin
from pyrmq.errors import ConfigError, RmqError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["ExecutorReport", "examine_executors"]

_CONNECT_S = 3.0
_CLOCK_S = 1.0
_TASKS_EACH = 4


@dataclass(frozen=True)
class ExecutorReport:
    """The report of one executor, or of the driver.

    Attributes:
        host: where it runs.
        role: driver or executor.
        python: its interpreter and version.
        versions: packages by name; None for one that cannot be imported.
        reached: milliseconds that a connection took, by address; a text if it failed.
        problems: each problem with its fix; empty if there is none.
    """

    host: str
    role: str
    python: str
    versions: dict[str, str | None]
    reached: dict[str, float | str]
    problems: list[str] = field(default_factory=list)


def _check_environment(addresses: list[str], timeout_s: float) -> dict[str, Any]:
    # This code runs where pyrmq may be missing, so it uses only the standard library.
    import importlib
    import os
    import socket
    import sys
    import time

    versions: dict[str, str | None] = {}
    for name in ("pyrmq", "pyrmq._core", "pyarrow", "pandas", "pyspark"):
        try:
            module = importlib.import_module(name)
        except Exception:  # noqa: BLE001 - whatever it is, the package cannot be used
            versions[name] = None
        else:
            versions[name] = str(getattr(module, "__version__", "there"))
    reached: dict[str, float | str] = {}
    for address in addresses:
        host, _, port = address.rpartition(":")
        begun = time.monotonic()
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
        except (OSError, ValueError) as error:
            reached[address] = str(error)
        else:
            reached[address] = round((time.monotonic() - begun) * 1000, 1)
    return {
        "host": socket.gethostname(),
        "process": os.getppid(),
        "python": f"{sys.executable} ({sys.version.split()[0]})",
        "versions": versions,
        "reached": reached,
        "now": time.time(),
    }


# Functions of the main module are pickled with their code: the executor may not have this file.
_check_environment.__module__ = "__main__"


def examine_executors(
    spark: SparkSession, name_server: str | None = None, *, timeout: float = _CONNECT_S
) -> list[ExecutorReport]:
    """Check the packages and reachable servers of every executor, and of the driver.

    Brokers are tried under the addresses that they advertise (``brokerIP1``), which is where tasks
    connect to.

    Args:
        spark: a session with a SparkContext (not Spark Connect).
        name_server: ``host:port;host:port``; without it NAMESRV_ADDR.
        timeout: seconds for each connection.

    Raises:
        OptionError: no name server is given.
        ConfigError: the session is one of Spark Connect.

    Example:
        >>> [report.problems for report in examine_executors(spark)]  # doctest: +SKIP
        [[], []]
    """
    given = {} if name_server is None else {"nameServer": name_server}
    names = OptionValues(given, {}).addresses("nameServer").split(";")
    brokers, trouble = _advertised(";".join(names), timeout)
    addresses = [*names, *brokers]
    begun = time.time()
    answers = [("driver", _check_environment(addresses, timeout))]
    answers += [("executor", answer) for answer in _from_executors(spark, addresses, timeout)]
    ended = time.time()
    own = answers[0][1]
    reports = []
    for role, answer in answers:
        problems = _problems(answer, own, brokers)
        if not begun - _CLOCK_S <= answer["now"] <= ended + _CLOCK_S:
            seconds = answer["now"] - (begun + ended) / 2
            problems.append(f"its clock differs from the driver's by {seconds:.1f} s: use NTP")
        if role == "driver":
            problems += trouble
        reports.append(
            ExecutorReport(
                answer["host"],
                role,
                answer["python"],
                answer["versions"],
                answer["reached"],
                problems,
            )
        )
    return reports


def _advertised(names: str, timeout: float) -> tuple[dict[str, str], list[str]]:
    """Return each broker's name by its advertised address, and what went wrong."""
    found: dict[str, str] = {}
    try:
        with Admin(name_server=names, timeout=timeout) as admin:
            for members in admin.cluster().values():
                for broker in members:
                    found.update(dict.fromkeys(broker.addresses.values(), broker.name))
    except RmqError as error:
        return {}, [f"the brokers are unknown: {error}"]
    return found, [] if found else ["the name servers know no broker: start one"]


def _from_executors(
    spark: SparkSession, addresses: list[str], timeout: float
) -> list[dict[str, Any]]:
    if not hasattr(spark, "_jsc"):
        raise ConfigError(
            "Spark Connect has no SparkContext, which is needed to reach every executor: run"
            " `pyrmq spark doctor --master ...` where the cluster can be used directly"
        )
    context = spark.sparkContext
    executors = int(context._jsc.sc().getExecutorMemoryStatus().size())
    tasks = max(context.defaultParallelism, executors) * _TASKS_EACH
    check = _check_environment

    def one_task(_: object) -> list[dict[str, Any]]:
        import time

        # Long enough for every executor to get some of the tasks.
        time.sleep(0.2)
        return [check(addresses, timeout)]

    one_task.__module__ = "__main__"
    answers = context.parallelize(range(tasks), tasks).mapPartitions(one_task).collect()
    return list({(answer["host"], answer["process"]): answer for answer in answers}.values())


def _problems(
    answer: Mapping[str, Any], driver: Mapping[str, Any], brokers: Mapping[str, str]
) -> list[str]:
    problems = []
    versions = answer["versions"]
    wheel = f"pyrmq-rocketmq[spark]=={pyrmq.__version__}"
    for name in ("pyrmq", "pyrmq._core", "pyarrow", "pandas"):
        if versions[name] is None:
            problems.append(
                f"{name} cannot be imported: install {wheel} there, or ship an environment with"
                " --archives"
            )
            break
    for name, own in driver["versions"].items():
        if own is not None and versions[name] not in {own, None}:
            problems.append(
                f"{name} is {versions[name]}, the driver has {own}: install the same version"
            )
    for address, outcome in answer["reached"].items():
        if isinstance(outcome, str):
            broker = brokers.get(address)
            what = f"broker {broker}" if broker else "name server"
            fix = (
                "open the port, or set brokerIP1 of the broker to an address that this host reaches"
                if broker
                else "open the port, or name another address"
            )
            problems.append(f"{what} at {address} cannot be reached: {outcome}. Fix: {fix}")
    return problems
