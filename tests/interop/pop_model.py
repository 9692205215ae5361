"""A model of consumption by POP: seeded members do anything with messages, a checker watches.

What must hold: a message that was acknowledged in time never comes again; every other comes again,
once each time; an ordered group gets the messages of a queue in order.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Literal

from pyrmq import Producer, ReceiptError, RmqError, SimpleConsumer

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import PoppedMessage

INVISIBLE_S = 3.0
MARGIN_S = 1.0
"""With less time left nothing is sent about a message: it would only be late."""

Action = Literal["ack", "ignore", "late", "longer", "give back", "twice"]
ACTIONS: list[Action] = ["ack", "ack", "ack", "ignore", "late", "longer", "give back", "twice"]


class Model:
    """What was sent, received and acknowledged.

    Args:
        name_server: The name server of two brokers.
        topic: A topic on both; the group is named after it.
        seed: Seed of all choices.
        order: What the group keeps in order.
    """

    def __init__(
        self,
        name_server: str,
        topic: str,
        seed: int,
        order: Literal["none", "queue"] = "none",
    ) -> None:
        self.name_server = name_server
        self.topic = topic
        self.order = order
        self.random = random.Random(seed)
        self.wrong: list[str] = []
        self.sent: set[str] = set()
        # Of each message: how often it came with which count of earlier deliveries.
        self._tries: dict[str, Counter[int]] = defaultdict(Counter)
        self.acked: dict[str, float] = {}
        # With an order, by queue: offsets, and when they were popped or acknowledged, ms.
        self._popped: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self._done: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        # Guards what is above.
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, messages: int, seconds: float, crash: Callable[[], None] | None = None) -> None:
        """Send and consume for a time; `crash` is called in its middle. Then receive the rest.

        Raises:
            AssertionError: Something came that must not come, or did not come.
        """
        seeds = [self.random.getrandbits(32) for _ in range(3)]
        members = [threading.Thread(target=self._member, args=(seed,)) for seed in seeds]
        sender = threading.Thread(target=self._send, args=(messages, seconds / 2))
        for thread in (*members, sender):
            thread.start()
        time.sleep(seconds / 2)
        if crash is not None:
            crash()
        time.sleep(seconds / 2)
        sender.join(60)
        self._stop.set()
        for member in members:
            member.join(60)
        self._receive_the_rest()
        self._check_order()
        if crash is None:
            self._check_tries()
        assert not self.wrong, self.wrong[:10]
        missing = sorted(self.sent - self.acked.keys())
        assert not missing, f"{len(missing)} never came: {missing[:10]}"

    def _send(self, messages: int, seconds: float) -> None:
        with Producer(name_server=self.name_server) as producer:
            for number in range(messages):
                try:
                    producer.send(self.topic, str(number))
                except RmqError:
                    # It may be stored: whether it comes is not asked.
                    continue
                with self._lock:
                    self.sent.add(str(number))
                self._stop.wait(seconds / messages)

    def _consumer(self) -> SimpleConsumer:
        return SimpleConsumer(
            name_server=self.name_server,
            group=f"{self.topic}-group",
            order=self.order,
            max_tries=1000,
        )

    def _member(self, seed: int) -> None:
        """Join, consume, leave and join again, as often as the time allows."""
        choices = random.Random(seed)
        while not self._stop.is_set():
            with self._consumer() as consumer:
                try:
                    consumer.subscribe(self.topic)
                    for _ in range(choices.randint(2, 12)):
                        self._receive(consumer, choices)
                except RmqError:
                    # A broker is down: go on.
                    self._stop.wait(0.2)

    def _receive(self, consumer: SimpleConsumer, choices: random.Random) -> None:
        began = time.monotonic()
        found = consumer.receive(choices.randint(1, 8), invisible=INVISIBLE_S, wait=0.5)
        for message in found:
            self._note(message, began)
        if self.order == "queue":
            # The first that is not acknowledged holds back those behind it.
            action: Action = choices.choice(["ack", "ack", "ignore"])
            if action == "ack":
                for message in found:
                    if not self._ack(consumer, message):
                        # It comes again, and so would those behind it, although acknowledged.
                        return
            return
        for message in found:
            try:
                self._act(consumer, message, choices.choice(ACTIONS))
            except RmqError:
                # Whether it was acknowledged is not known.
                continue

    def _act(self, consumer: SimpleConsumer, message: PoppedMessage, action: Action) -> None:
        if action == "ignore":
            return
        if action in {"give back", "longer"} and message.receipt.time_left <= MARGIN_S:
            # It may come again by itself just then, and by the change as well.
            return
        if action == "give back":
            consumer.change_invisible(message, 0)
        elif action == "late":
            time.sleep(message.receipt.time_left + 0.1)
            try:
                consumer.ack(message)
            except ReceiptError:
                return
            self._say(f"{message.body!r} was acknowledged after its time")
        else:
            if action == "longer":
                consumer.change_invisible(message, 2 * INVISIBLE_S)
            self._ack(consumer, message)
            if action == "twice" and message.receipt.is_used:
                try:
                    consumer.ack(message)
                except ReceiptError:
                    return
                self._say(f"{message.body!r} was acknowledged twice")

    def _ack(self, consumer: SimpleConsumer, message: PoppedMessage) -> bool:
        """Acknowledge a message. False: it may have been too late."""
        if message.receipt.time_left <= MARGIN_S:
            return False
        try:
            consumer.ack(message)
        except RmqError:
            return False
        now_ms = _now_ms()
        # By the broker's clock, which is this machine's: the client counts from the answer.
        _, popped_ms, invisible_ms = map(int, message.receipt.handle.split()[:3])
        if now_ms >= popped_ms + invisible_ms:
            return False
        with self._lock:
            self.acked.setdefault(message.body.decode(), time.monotonic())
            queue = (message.broker, message.queue_id)
            self._done[queue].append((message.queue_offset, now_ms))
        return True

    def _check_order(self) -> None:
        """Nothing is popped once it, or a later message of its queue, is acknowledged."""
        if self.order != "queue":
            return
        for queue, popped in self._popped.items():
            for offset, popped_ms in popped:
                late = [one for one in self._done[queue] if one[0] >= offset and one[1] < popped_ms]
                if late:
                    text = f"offset {offset} of {queue} was popped at {popped_ms}, acknowledged at"
                    self._say(f"{text} {late[0][1]}: offset {late[0][0]}")

    def _check_tries(self) -> None:
        """Each time a message comes, it was delivered once more often.

        Not after a crash: the broker may bring it back twice. Not with an order: a broker forgets
        how often those were delivered that the last pop of the queue left out.
        """
        if self.order == "queue":
            return
        for body, tries in self._tries.items():
            twice = [number for number, times in tries.items() if times > 1]
            if twice:
                self._say(f"{body} came more than once after {twice} deliveries")

    def _note(self, message: PoppedMessage, began: float) -> None:
        body = message.body.decode()
        popped_ms = int(message.receipt.handle.split()[1])
        with self._lock:
            self._tries[body][message.reconsume_times] += 1
            self._popped[message.broker, message.queue_id].append((message.queue_offset, popped_ms))
            done = self.acked.get(body)
            if done is not None and done < began - INVISIBLE_S:
                self.wrong.append(f"{body} came again {began - done:.1f} s after it was done")

    def _say(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    def _receive_the_rest(self) -> None:
        deadline = time.monotonic() + 60
        with self._consumer() as consumer:
            consumer.subscribe(self.topic)
            while self.sent - self.acked.keys() and time.monotonic() < deadline:
                began = time.monotonic()
                try:
                    found = consumer.receive(32, invisible=10.0, wait=1.0)
                except RmqError:
                    continue
                for message in found:
                    self._note(message, began)
                    self._ack(consumer, message)
            began = time.monotonic()
            for message in consumer.receive(32, invisible=10.0, wait=3.0):
                self._note(message, began)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
