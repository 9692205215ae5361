"""`python -m benches.profile ROW`: where the processor time of one load goes.

The load runs three times on a server of its own: once to count, once with probes on the allocator,
and once under the profilers. What a load reads is stored before that. A table has what each message
costs on both sides; the pictures are a flame graph of the server's Rust threads (perf) and a
profile of the client's Python (py-spy). What a missing tool would have measured is `-`, and a line
below the table names the tool.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benches import flame
from benches.loads import LOADS, READS
from benches.results import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
STOP_SECONDS = 60
COUNTED = {
    "raw_syscalls:sys_enter": "system calls",
    "instructions:u": "instructions",
}
ALLOCATIONS = "allocations"
TABLE = (
    ("processor, user, us", "user"),
    ("processor, system, us", "system"),
    ("instructions", "instructions"),
    ("system calls", "system calls"),
    ("wake-ups", "wake-ups"),
    ("preemptions", "preemptions"),
    ("page faults", "page faults"),
    ("allocations", ALLOCATIONS),
    ("samples in copies, %", "copies"),
)
"""Text and name of each figure."""

Figures = dict[str, float]


class MissingToolError(Exception):
    """A tool that this machine does not have, or may not use; the text says what to do."""


def usage(pid: int) -> Figures:
    """Read what a process has used so far; its ended threads count for time and faults only."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    figures = {
        "page faults": float(fields[7]) + float(fields[9]),
        "user": float(fields[11]) / TICKS * 1e6,
        "system": float(fields[12]) / TICKS * 1e6,
        "wake-ups": 0.0,
        "preemptions": 0.0,
    }
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            lines = (task / "status").read_text().splitlines()
        except OSError:
            continue  # it has just ended
        status = dict(line.split(":", 1) for line in lines)
        figures["wake-ups"] += float(status["voluntary_ctxt_switches"])
        figures["preemptions"] += float(status["nonvoluntary_ctxt_switches"])
    return figures


@contextmanager
def server(home: Path, row: str) -> Iterator[tuple[str, int]]:
    """Run name server and broker in one process, with what the load reads.

    Yields:
        The name server's address and the pid.
    """
    command = [sys.executable, "-P", "-m", "pyrmq", "server", "--json", "--store", str(home)]
    command += ["--listen-port", "0", "--name-server-port", "0", "--log-level", "error"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["name_server"]
            if row in READS:
                command, environment = client("fill", row, address)
                subprocess.run(command, env=environment, check=True)
            yield address, process.pid
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)


def client(*words: str, before: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of the load, after the words of a tool."""
    command = [*before, sys.executable, "-P", str(ROOT / "benches/loads.py"), *words]
    return command, {**os.environ, "PYTHONPATH": f"{ROOT / 'python'}{os.pathsep}{ROOT}"}


class Tools:
    """The tools of this machine, and why others are missing."""

    def __init__(self) -> None:
        self.missing: list[str] = []

    def path(self, name: str, fix: str) -> str:
        """Return where a tool is.

        Raises:
            MissingToolError: it is not installed.
        """
        beside = Path(sys.executable).parent / name
        found = str(beside) if beside.exists() else shutil.which(name)
        if found is None:
            raise MissingToolError(f"{name} is missing ({fix})")
        return found

    def perf(self) -> str:
        """Return where perf is."""
        return self.path("perf", "Debian: apt install linux-perf")

    def note(self, error: MissingToolError, without: str) -> None:
        """Say what is not measured."""
        self.missing.append(f"without {without}: {error}")


def events(report: Path) -> Figures:
    """Read a report of `perf stat -x,`: event to count; what the machine cannot count is left out.

    Raises:
        MissingToolError: perf may not count on this machine.
    """
    figures: Figures = {}
    lines = report.read_text().splitlines()
    for line in lines:
        fields = line.split(",")
        if len(fields) > 2 and fields[0].replace(".", "", 1).isdigit():
            figures[fields[2]] = float(fields[0])
    if not figures:
        said = " ".join(lines)[:200] or "it printed nothing"
        raise MissingToolError(
            f"perf may not count here ({said}); run as root, or lower perf_event_paranoid"
        )
    return figures


@contextmanager
def counting(perf: str, pid: int, names: list[str], report: Path) -> Iterator[None]:
    """Count events of a running process during the block."""
    words = [perf, "stat", "-x,", "-o", str(report), "-e", ",".join(names), "-p", str(pid)]
    with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
        # It has attached once its file exists; that takes a few milliseconds.
        until = time.monotonic() + 5
        while not report.exists() and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_SECONDS)


def run_client(row: str, address: str, names: list[str], perf: str | None, report: Path) -> Figures:
    """Run the load once; return its speed, and what its process used."""
    before = [perf, "stat", "-x,", "-o", str(report), "-e", ",".join(names)] if perf else []
    command, environment = client(row, address, before=before)
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"the load {row} failed with status {process.returncode}: see above")
    return {
        "figure": float(output),
        "user": used.ru_utime * 1e6,
        "system": used.ru_stime * 1e6,
        "wake-ups": used.ru_nvcsw,
        "preemptions": used.ru_nivcsw,
        "page faults": used.ru_minflt + used.ru_majflt,
    }


def counted(row: str, tools: Tools, home: Path) -> dict[str, Figures]:
    """Run the load without a profiler; return what both sides used."""
    try:
        perf = tools.perf()
    except MissingToolError as error:
        tools.note(error, "system calls and instructions")
        perf = None
    names = list(COUNTED)
    sides: dict[str, Figures] = {}
    reports = {side: home / f"{side}.stat" for side in ("server", "client")}
    with ExitStack() as stack:
        address, pid = stack.enter_context(server(home / "store", row))
        before = usage(pid)
        with ExitStack() as attached:
            if perf:
                attached.enter_context(counting(perf, pid, names, reports["server"]))
            sides["client"] = run_client(row, address, names, perf, reports["client"])
        after = usage(pid)
        sides["server"] = {name: after[name] - before[name] for name in after}
    for side, report in reports.items() if perf else ():
        try:
            seen = events(report)
        except MissingToolError as error:
            tools.note(error, f"counts of the {side}")
            continue
        sides[side] |= {name: seen[event] for event, name in COUNTED.items() if event in seen}
        if "instructions:u" not in seen and side == "server":
            why = "this processor counts none (as in most virtual machines)"
            tools.note(MissingToolError(why), "instructions")
    return sides


@contextmanager
def probed(perf: str) -> Iterator[str]:
    """Put probes on the allocator of the C library, which Rust and Python use; yield their event.

    Raises:
        MissingToolError: the kernel refuses probes to this user.
    """
    maps = Path("/proc/self/maps").read_text().splitlines()
    library = next((line.split()[-1] for line in maps if "/libc.so" in line), None)
    if library is None:
        raise MissingToolError("no libc.so to put probes on")
    group = f"pyrmq{os.getpid()}"
    words = [f"{group}:{name}={name}" for name in ("malloc", "calloc", "realloc", "aligned_alloc")]
    command = [perf, "probe", "-q", "-f", "-x", library]
    for word in words:
        command += ["-a", word]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise MissingToolError(
            f"perf probe failed ({said[-1] if said else 'no reason given'}); run as root"
        )
    try:
        yield f"{group}:*"
    finally:
        subprocess.run([perf, "probe", "-q", "-d", f"{group}:*"], check=False, capture_output=True)


def allocations(row: str, tools: Tools, home: Path) -> Figures:
    """Run the load with probes on the allocator; return the allocations of both sides."""
    try:
        perf = tools.perf()
        reports = {side: home / f"{side}.probes" for side in ("server", "client")}
        with (
            probed(perf) as event,
            server(home / "store", row) as (address, pid),
            counting(perf, pid, [event], reports["server"]),
        ):
            run_client(row, address, [event], perf, reports["client"])
        return {side: sum(events(report).values()) for side, report in reports.items()}
    except MissingToolError as error:
        tools.note(error, ALLOCATIONS)
        return {}


def profiled(row: str, tools: Tools, home: Path, out: Path) -> tuple[Figures, list[Path]]:
    """Run the load under the profilers; return the server's share of copies, and the pictures."""
    figures: Figures = {}
    pictures: list[Path] = []
    before: list[str] = []
    try:
        spy = tools.path("py-spy", "pip install py-spy")
        picture = out / f"{row}-client.svg"
        before = [spy, "record", "--native", "--rate", "199", "--output", str(picture), "--"]
        pictures.append(picture)
    except MissingToolError as error:
        tools.note(error, "the client's profile")
    with server(home / "store", row) as (address, pid), ExitStack() as stack:
        recorder = None
        data = home / "perf.data"
        try:
            words = [tools.perf(), "record", "-q", "-e", "cpu-clock", "-F", "199"]
            words += ["--call-graph", "dwarf,16384", "-o", str(data), "-p", str(pid)]
            recorder = stack.enter_context(subprocess.Popen(words, stderr=subprocess.DEVNULL))
        except MissingToolError as error:
            tools.note(error, "the server's flame graph and its copies")
        command, environment = client(row, address, before=before)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if recorder:
            recorder.send_signal(signal.SIGINT)
            recorder.wait(STOP_SECONDS)
        if before and not pictures[0].exists():
            said = done.stderr.strip().splitlines()
            pictures.clear()
            why = f"py-spy failed ({said[-1] if said else done.returncode}); run as root"
            tools.note(MissingToolError(why), "the client's profile")
    if recorder:
        _flame(row, tools, data, out, figures, pictures)
    return figures, pictures


def _flame(
    row: str, tools: Tools, data: Path, out: Path, figures: Figures, pictures: list[Path]
) -> None:
    words = [tools.perf(), "script", "-i", str(data), "-F", "comm,tid,time,ip,sym,dso"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    samples = flame.folded(done.stdout.splitlines())
    if not samples.total:
        tools.note(
            MissingToolError(f"perf took no samples: {done.stderr.strip()[:200]}"),
            "the flame graph",
        )
        return
    figures["copies"] = 100 * samples.copying / samples.total
    picture = out / f"{row}-server.svg"
    picture.write_text(flame.svg(f"{row}: the server, {samples.total} samples", samples))
    pictures.append(picture)
    if samples.unnamed > samples.total / 3:
        why = "the native module has no symbols; `make profile` builds it with them"
        tools.note(
            MissingToolError(why), f"names of {samples.unnamed / samples.total:.0%} of the samples"
        )


def table(row: str, sides: dict[str, Figures]) -> str:
    """Return what a message costs on each side."""
    count = LOADS[row][0]
    lines = [f"| {row}, {count:,} messages, each | server | client |", "|---|---|---|"]
    for text, name in TABLE:
        whole = name == "copies"
        cells = []
        for side in ("server", "client"):
            value = sides[side].get(name)
            cells.append("-" if value is None else f"{value if whole else value / count:,.3f}")
        lines.append(f"| {text} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Profile one row; print the table, and where the pictures are."""
    parser = argparse.ArgumentParser(prog="benches.profile", description=__doc__)
    parser.add_argument("row", help=f"one of: {', '.join(LOADS)}")
    parser.add_argument("--out", type=Path, default=ROOT / "benches/results", help="folder")
    given = parser.parse_args()
    row, out = given.row, given.out
    if row not in LOADS:
        near = difflib.get_close_matches(row, LOADS, n=1)
        hint = f", did you mean `{near[0]}`?" if near else ""
        parser.error(f"unknown row `{row}`{hint}; known: {', '.join(LOADS)}")
    out.mkdir(parents=True, exist_ok=True)
    tools = Tools()
    with tempfile.TemporaryDirectory(prefix="pyrmq-profile-") as directory:
        homes = [Path(directory) / name for name in ("count", "probe", "profile")]
        for home in homes:
            home.mkdir()
        sides = counted(row, tools, homes[0])
        for side, value in allocations(row, tools, homes[1]).items():
            sides[side][ALLOCATIONS] = value
        copies, pictures = profiled(row, tools, homes[2], out)
        sides["server"] |= copies
    unit = "us" if row == "lone" else "messages/s"
    print(table(row, sides))
    print(f"\nspeed without a profiler: {sides['client'].pop('figure'):,.0f} {unit}")
    for line in tools.missing:
        print(line)
    for picture in pictures:
        print(f"picture: {picture}")
    results: dict[str, Any] = {"row": row, "messages": LOADS[row][0], "sides": sides}
    path = out / f"{row}-profile.json"
    path.write_text(json.dumps({**results, "machine": machine()}, indent=1) + "\n")
    print(f"figures: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
