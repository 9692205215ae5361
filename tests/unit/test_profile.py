"""What `benches.profile` and its flame graphs make of the tools' output."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest
from benches import flame, profile
from benches.loads import BACKLOG, LOADS, READS, fill, run

from pyrmq import Admin

if TYPE_CHECKING:
    from pyrmq.testing import Cluster

ROOT = Path(__file__).resolve().parents[2]

# As `perf script -F comm,tid,time,ip,sym,dso` prints it.
SCRIPT = """
pyrmq-io 4711 13837.396047:
    ffffffff816c9827 copy_user_generic+0x27 ([kernel.kallsyms])
              16c9827 pyrmq_store::append::write::h0123456789abcdef+0x1b (/x/_core.abi3.so)
              16c9000 <pyrmq_broker::Send as Row>::process+0x2 (/x/_core.abi3.so)

pyrmq-io 4711/4712 [001] 13837.400000:
              16c9001 <pyrmq_broker::Send as Row>::process+0x2 (/x/_core.abi3.so)

pyrmq flush 4713 13837.500000:
         7f8512345678 [unknown] (/x/_core.abi3.so)

"""


def test_samples_are_counted_by_stack() -> None:
    samples = flame.folded(SCRIPT.splitlines())
    process, write = "<pyrmq_broker::Send as Row>::process", "pyrmq_store::append::write"
    assert samples.stacks == {
        ("pyrmq-io", process, write, "copy_user_generic"): 1,
        ("pyrmq-io", process): 1,
        ("pyrmq flush", "[_core.abi3.so]"): 1,
    }
    assert (samples.total, samples.unnamed, samples.copying) == (3, 1, 1)


def test_a_flame_graph_shows_each_frame_in_proportion() -> None:
    picture = flame.svg("a <title>", flame.folded(SCRIPT.splitlines()))
    root = ElementTree.fromstring(picture)
    space = {"svg": "http://www.w3.org/2000/svg"}
    shares = {
        frame.findtext("svg:title", namespaces=space): frame.find("svg:rect", space)
        for frame in root.iterfind("svg:g", space)
    }
    assert "<pyrmq_broker::Send as Row>::process: 66.7%" in shares
    widths = {name: rect.get("width") for name, rect in shares.items() if rect is not None}
    assert widths["pyrmq flush: 33.3%"] == widths["copy_user_generic: 33.3%"]
    assert float(widths["pyrmq-io: 66.7%"] or 0) == pytest.approx(2 / 3 * flame.WIDTH, abs=0.1)


def test_events_that_the_machine_cannot_count_are_left_out(tmp_path: Path) -> None:
    report = tmp_path / "server.stat"
    report.write_text(
        "# started on Fri\n\n1200,,raw_syscalls:sys_enter,100,100.00,,\n"
        "<not supported>,,instructions:u,0,100.00,,\n"
    )
    assert profile.events(report) == {"raw_syscalls:sys_enter": 1200.0}
    report.write_text("Error: Access to performance monitoring is limited\n")
    with pytest.raises(profile.MissingToolError, match=r"perf may not count here \(Error: Access"):
        profile.events(report)


def test_a_table_shows_what_a_message_costs_and_a_dash_where_a_tool_is_missing() -> None:
    count = LOADS["lone"][0]
    sides = {"server": {"user": 3.0 * count, "copies": 12.5}, "client": {"user": 1.5 * count}}
    lines = profile.table("lone", sides).splitlines()
    assert lines[0] == "| lone, 5,000 messages, each | server | client |"
    assert "| processor, user, us | 3.000 | 1.500 |" in lines
    assert "| samples in copies, % | 12.500 | - |" in lines
    assert "| system calls | - | - |" in lines


def test_loads_that_read_find_their_backlog_and_the_others_store_none(
    rocketmq: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in READS:
        monkeypatch.setitem(LOADS, name, (2000, LOADS[name][1]))
    fill("lone", rocketmq.name_server)
    with Admin(name_server=rocketmq.name_server) as admin:
        assert BACKLOG not in admin.topics()
        for stored, name in enumerate(sorted(READS), 1):
            fill(name, rocketmq.name_server)
            assert run(name, rocketmq.name_server) >= 0
            queues = admin.topic_stats(BACKLOG).values()
            assert sum(queue.last for queue in queues) == 2000 * stored


@pytest.mark.timeout(120)
def test_an_unknown_row_is_refused_with_its_neighbour() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benches.profile", "produce2k"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 2
    assert "unknown row `produce2k`, did you mean `produce1k`?" in done.stderr
