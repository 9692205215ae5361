"""Selection and fault tolerance against a plain Python model, and the simulator's promises."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from benches.routing.__main__ import main
from benches.routing.simulator import SCHEDULE, SCRIPTS, Apache, Broker, Ours, simulate
from hypothesis import given, settings
from hypothesis import strategies as st

from pyrmq.routing import LatencyFaultTolerance, QueueSelector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BROKERS = ["a", "b", "c"]


class Model:
    """The rule of docs/producer.md in plain Python."""

    def __init__(self, start: int) -> None:
        self.next = start
        self.until: dict[str, int] = {}
        self.reachable: dict[str, bool] = {}

    def update(
        self, broker: str, latency: int, now: int, *, isolate: bool, reachable: bool
    ) -> None:
        """Record a finished attempt."""
        measured = 10_000 if isolate else latency
        out = max((out for row, out in SCHEDULE if measured >= row), default=0)
        if out or not reachable or broker in self.reachable:
            self.reachable[broker] = reachable
        if out:
            self.until[broker] = max(self.until.get(broker, -1), now + out)

    def select(self, queues: list[str], last: str | None, now: int, *, faults: bool) -> int | None:
        """Select an available queue not on the last broker; then a reachable one; then any."""
        passes: list[Callable[[str], bool]] = [lambda broker: broker != last]
        if faults:
            passes = [
                lambda broker: broker != last and now >= self.until.get(broker, 0),
                lambda broker: broker != last and self.reachable.get(broker, True),
            ]
        passes.append(lambda _: True)
        for may in passes:
            start = self.next
            for step in range(len(queues)):
                place = (start + step) % len(queues)
                if may(queues[place]):
                    self.next += step + 1
                    return place
            self.next += len(queues)
        return None


UPDATES = st.tuples(
    st.just("update"),
    st.sampled_from(BROKERS),
    st.sampled_from([0, 49, 50, 100, 549, 550, 1800, 2999, 3000, 5000, 15_000]),
    st.booleans(),
    st.booleans(),
)
SELECTS = st.tuples(st.just("select"), st.sampled_from([*BROKERS, None]), st.booleans())
WAITS = st.tuples(st.just("wait"), st.sampled_from([1, 1999, 2000, 5000, 10_000, 30_000]))


@settings(max_examples=200)
@given(
    start=st.integers(0, 10_000),
    queues=st.lists(st.sampled_from(BROKERS), max_size=9),
    steps=st.lists(st.one_of(UPDATES, SELECTS, WAITS), max_size=60),
)
def test_the_native_rule_is_the_model(
    start: int, queues: list[str], steps: list[tuple[object, ...]]
) -> None:
    model, selector, faults = Model(start), QueueSelector(start), LatencyFaultTolerance()
    now = 0
    for step in steps:
        match step:
            case ("update", str(broker), int(latency), bool(isolate), bool(reachable)):
                model.update(broker, latency, now, isolate=isolate, reachable=reachable)
                faults.update(
                    broker, latency_ms=latency, now_ms=now, isolate=isolate, reachable=reachable
                )
            case ("select", last, bool(tolerant)):
                assert last is None or isinstance(last, str)
                chosen = selector.select(
                    queues, last_broker=last, faults=faults if tolerant else None, now_ms=now
                )
                assert chosen == model.select(queues, last, now, faults=tolerant)
            case ("wait", int(pause)):
                now += pause
    for broker in BROKERS:
        assert faults.is_available(broker, now_ms=now) == (now >= model.until.get(broker, 0))
        assert faults.is_reachable(broker) == model.reachable.get(broker, True)


@settings(max_examples=100)
@given(
    start=st.integers(0, 1000),
    last=st.lists(st.sampled_from([*BROKERS, None]), min_size=1, max_size=30),
    slow=st.sets(st.sampled_from(BROKERS)),
)
def test_apaches_classes_and_ours_choose_brokers_by_the_same_passes(
    start: int, last: list[str | None], slow: set[str]
) -> None:
    apache, selector, faults = Apache(start), QueueSelector(start), LatencyFaultTolerance()
    for broker in slow:
        apache.learn(broker, 700, failed=False, now_ms=0)
        faults.update(broker, latency_ms=700, now_ms=0)
    for now in (1, 1999, 2000):
        for failed in last:
            theirs = BROKERS[apache.choose(BROKERS, failed, now)]
            place = selector.select(BROKERS, last_broker=failed, faults=faults, now_ms=now)
            assert place is not None
            mine = BROKERS[place]
            free = {b for b in BROKERS if b != failed and (b not in slow or now >= 2000)}
            others = {b for b in BROKERS if b != failed}
            for chosen in (mine, theirs):
                assert chosen in (free or others)


def test_issue_2358_the_failed_broker_is_never_forced_on_a_retry() -> None:
    selector, faults = QueueSelector(), LatencyFaultTolerance()
    for broker in BROKERS:
        faults.update(broker, latency_ms=3000, now_ms=0, isolate=True)
    queues = [broker for broker in BROKERS for _ in range(4)]
    for _ in range(100):
        place = selector.select(queues, last_broker="a", faults=faults, now_ms=1)
        assert place is not None
        assert queues[place] != "a"


def test_issue_7812_no_broker_is_avoided_for_ever() -> None:
    selector, faults = QueueSelector(), LatencyFaultTolerance()
    faults.update("a", latency_ms=60_000, now_ms=0, isolate=True, reachable=False)
    for now, share in ((1, 0), (29_999, 1), (40_000, 1)):
        chosen = Counter(
            BROKERS[selector.select(BROKERS, faults=faults, now_ms=now) or 0] for _ in range(300)
        )
        assert (chosen["a"] > 0) == bool(share), now


@pytest.mark.parametrize("queues", [1, 4, 8])
@pytest.mark.parametrize("left_out", [None, "b"])
def test_issue_5672_one_thread_spreads_evenly(queues: int, left_out: str | None) -> None:
    selector, faults = QueueSelector(), LatencyFaultTolerance()
    names = [broker for broker in BROKERS for _ in range(queues)]
    if left_out:
        faults.update(left_out, latency_ms=600, now_ms=0)
    chosen = Counter(selector.select(names, faults=faults, now_ms=1) for _ in range(24 * 100))
    used = [n for place, n in chosen.items() if place is not None and names[place] != left_out]
    assert sum(used) == 2400
    assert max(used) - min(used) <= 1


def test_issue_8990_a_silent_broker_fails_no_send() -> None:
    script = SCRIPTS["one silent for 20 s"]
    ours, theirs = (simulate(rule, script, seconds=60) for rule in (Ours(), Apache()))
    assert ours.errors == 0
    assert theirs.errors > 0, "the script shows the fault"


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_ours_is_never_worse_than_apaches(name: str, seed: int) -> None:
    ours, theirs = (
        simulate(rule, SCRIPTS[name], seconds=60, seed=seed) for rule in (Ours(), Apache())
    )
    assert ours.errors <= theirs.errors
    assert ours.percentile(1) <= theirs.percentile(1)
    assert ours.percentile(0.99) <= theirs.percentile(0.99)
    assert ours.mean <= theirs.mean * 1.01


def test_the_simulator_shows_both_rules_in_a_table_and_a_plot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plots" / "rules.svg"
    monkeypatch.setattr("sys.argv", ["benches.routing", "--seconds", "5", "--plot", str(path)])
    shown = dict(list(SCRIPTS.items())[:2])
    monkeypatch.setattr("benches.routing.__main__.SCRIPTS", shown)
    assert main() == 0
    table, drawn = capsys.readouterr().out, path.read_text()
    for script in shown:
        for rule in ("Apache", "Ours"):
            assert f"| {script} | {rule} |" in table
        # A font file names the text of its outlines here.
        assert f"<!-- {script} -->" in drawn


def test_a_broker_that_was_slow_gets_its_share_again() -> None:
    script = [Broker("a"), Broker("b", script=[(0, 5000, 1000.0)])]
    outcome = simulate(Ours(), script, seconds=60)
    assert 0.4 < outcome.share("b") < 0.5
