"""A model of consumption by POP: seeded members do anything with messages, a checker watches.

What must hold: a message that was acknowledged in time never comes again; every other comes again,
once each time and not early; an ordered group gets the messages of a queue in order. Some members
are killed. A broker may be, too: then a message may come early, and what was out may come twice
until it is acknowledged.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from pyrmq import Producer, ReceiptError, RmqError, SimpleConsumer
from tests.interop.pop_member import (
    INVISIBLE_S,
    MARGIN_S,
    Order,
    Popped,
    acknowledge,
    consumer_of,
    due_ms,
    killed_member,
    now_ms,
    popped_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyrmq import PoppedMessage

EARLY_MS = 1000
"""By this much a message may come early."""
UNWRITTEN_MS = 2000
"""A broker that is killed may forget what an ordered group acknowledged in this time before it."""
REVIVED_AGAIN_MS = 30_000
"""A real one may forget what any group acknowledged in this time before and after."""

Action = Literal["ack", "ignore", "late", "longer", "give back", "twice"]
ACTIONS: list[Action] = ["ack", "ack", "ack", "ignore", "late", "longer", "give back", "twice"]


class Model:
    """What was sent, received and acknowledged.

    Args:
        name_server: The name server of two brokers.
        topic: A topic on both; the group is named after it.
        seed: Seed of all choices.
        order: What the group keeps in order.
        may_double: Whether a broker may hand out a message twice at a time. Real ones do if a
            thread is delayed between reading the group's offset and what is buffered of it.
    """

    def __init__(
        self,
        name_server: str,
        topic: str,
        seed: int,
        order: Order = "none",
        *,
        may_double: bool = False,
    ) -> None:
        self.name_server = name_server
        self.topic = topic
        self.order: Order = order
        self.may_double = may_double
        self.random = random.Random(seed)
        self.wrong: list[str] = []
        self.sent: set[str] = set()
        # By body.
        self._came: dict[str, list[Popped]] = defaultdict(list)
        # When, ms.
        self.acked: dict[str, int] = {}
        # What a member may have acknowledged just before it was killed.
        self._unsure: set[str] = set()
        # By queue: offsets, and when they were acknowledged, ms.
        self._done: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        # When a broker was killed, and when it was back, ms.
        self._crash = (0, 0)
        # Guards what is above.
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def run(self, messages: int, seconds: float, crash: Callable[[], None] | None = None) -> None:
        """Send and consume for a time; `crash` is called in its middle. Then receive the rest.

        Raises:
            AssertionError: Something came that must not come, or did not come.
        """
        seeds = [self.random.getrandbits(32) for _ in range(4)]
        members = [threading.Thread(target=self._member, args=(seed,)) for seed in seeds[1:]]
        killer = threading.Thread(target=self._kill_members, args=(seeds[0],))
        sender = threading.Thread(target=self._send, args=(messages, seconds / 2))
        for thread in (killer, *members, sender):
            thread.start()
        time.sleep(seconds / 2)
        if crash is not None:
            killed_ms = now_ms()
            crash()
            self._crash = (killed_ms, now_ms())
        time.sleep(seconds / 2)
        sender.join(60)
        self._stop.set()
        for thread in (killer, *members):
            thread.join(60)
        self._receive_the_rest()
        self._check_done()
        self._check_order()
        if crash is None and not self.may_double:
            self._check_times()
            self._check_tries()
        assert not self.wrong, "\n".join(self.wrong[:10])
        missing = sorted(self._missing())
        assert not missing, f"{len(missing)} never came: {missing[:10]}"

    def _missing(self) -> set[str]:
        with self._lock:
            return self.sent - self.acked.keys() - self._unsure

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
        return consumer_of(self.name_server, self.topic, self.order)

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
                    # A broker is down: continue.
                    self._stop.wait(0.2)

    def _kill_members(self, seed: int) -> None:
        """Have members join and be killed; one at least."""
        choices = random.Random(seed)
        while True:
            for what, *values in killed_member(self.name_server, self.topic, self.order, choices):
                if what == "try":
                    with self._lock:
                        self._unsure.add(values[0])
                    continue
                delivery = Popped(**values[0])
                delivery.queue = (delivery.queue[0], delivery.queue[1])
                if what == "got":
                    self._note(delivery)
                else:
                    self._note_ack(delivery, values[1])
            if self._stop.is_set():
                return

    def _receive(self, consumer: SimpleConsumer, choices: random.Random) -> None:
        found = consumer.receive(choices.randint(1, 8), invisible=INVISIBLE_S, wait=0.5)
        deliveries = [popped_of(message) for message in found]
        for delivery in deliveries:
            self._note(delivery)
        if self.order == "queue":
            # The first that is not acknowledged holds back those after it.
            action: Action = choices.choice(["ack", "ack", "ignore"])
            if action == "ack":
                for message, delivery in zip(found, deliveries, strict=True):
                    if not self._ack(consumer, message, delivery):
                        # It is delivered again, as would be those after it, although acknowledged.
                        return
            return
        for message, delivery in zip(found, deliveries, strict=True):
            try:
                self._act(consumer, message, delivery, choices.choice(ACTIONS))
            except RmqError:
                # Whether it was acknowledged is not known.
                continue

    def _act(
        self, consumer: SimpleConsumer, message: PoppedMessage, delivery: Popped, action: Action
    ) -> None:
        if action == "ignore":
            return
        if action in {"give back", "longer"} and message.receipt.time_left <= MARGIN_S:
            # It may come again by itself just then, and by the change as well.
            return
        if action == "give back":
            delivery.due_ms = 0
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
                delivery.due_ms = due_ms(message)
            self._ack(consumer, message, delivery)
            if action == "twice" and message.receipt.is_used:
                try:
                    consumer.ack(message)
                except ReceiptError:
                    return
                self._say(f"{message.body!r} was acknowledged twice")

    def _ack(self, consumer: SimpleConsumer, message: PoppedMessage, delivery: Popped) -> bool:
        """Acknowledge a message. False: it may have been too late."""
        if message.receipt.time_left <= MARGIN_S:
            return False
        at_ms = acknowledge(consumer, message)
        if at_ms is None:
            return False
        self._note_ack(delivery, at_ms)
        return True

    def _note_ack(self, delivery: Popped, at_ms: int) -> None:
        with self._lock:
            self.acked.setdefault(delivery.body, at_ms)
            self._unsure.discard(delivery.body)
            self._done[delivery.queue].append((delivery.offset, at_ms))

    def _note(self, delivery: Popped) -> None:
        with self._lock:
            self._came[delivery.body].append(delivery)
            # It was not acknowledged.
            self._unsure.discard(delivery.body)

    def _may_be_forgotten(self, done_ms: int) -> bool:
        """Whether a kill may have undone an acknowledgement.

        A real broker, after its start, revives pop check points again, also of a plain group, and
        was seen not to count acknowledgements of some 10 s before the kill and after its return.
        """
        killed_ms, back_ms = self._crash
        if self.order == "none" and not self.may_double:
            return False
        if self.may_double:
            return killed_ms - REVIVED_AGAIN_MS < done_ms < back_ms + REVIVED_AGAIN_MS
        return killed_ms - UNWRITTEN_MS < done_ms < back_ms

    def _check_done(self) -> None:
        """What is acknowledged does not come again."""
        for body, done_ms in self.acked.items():
            late_ms = max(one.popped_ms for one in self._came[body]) - done_ms
            may_come = self._may_be_forgotten(done_ms) or self._is_doubled(body)
            if late_ms > 0 and not may_come:
                self._say_of(body, f"came again {late_ms} ms after it was done")

    def _is_doubled(self, body: str) -> bool:
        """Whether there were two of a message, of which one was acknowledged."""
        tries = Counter(one.tries for one in self._came[body])
        return self.may_double and max(tries.values()) > 1

    def _check_order(self) -> None:
        """Nothing is popped once it, or a later message of its queue, is acknowledged."""
        if self.order != "queue":
            return
        for delivery in (one for deliveries in self._came.values() for one in deliveries):
            popped_ms = delivery.popped_ms
            for offset, done_ms in self._done[delivery.queue]:
                if offset < delivery.offset or done_ms >= popped_ms:
                    continue
                if not self._may_be_forgotten(done_ms):
                    text = f"offset {delivery.offset} of {delivery.queue} was popped at {popped_ms}"
                    self._say(f"{text}, acknowledged at {done_ms}: offset {offset}")
                    break

    def _check_times(self) -> None:
        """A message is hidden for its time after each delivery."""
        for body, deliveries in self._came.items():
            deliveries.sort(key=lambda one: one.popped_ms)
            for former, one in pairwise(deliveries):
                early_ms = former.due_ms - one.popped_ms
                if early_ms > EARLY_MS:
                    self._say_of(body, f"came {early_ms} ms early")

    def _check_tries(self) -> None:
        """Each time a message comes, it was delivered once more often.

        Not after a crash: the broker may bring it back twice. Not with an order: a broker forgets
        how often those were delivered that the last pop of the queue left out.
        """
        if self.order == "queue":
            return
        for body, deliveries in self._came.items():
            tries = Counter(one.tries for one in deliveries)
            twice = [number for number, times in tries.items() if times > 1]
            if twice:
                self._say_of(body, f"came more than once after {twice} deliveries")

    def _say_of(self, body: str, text: str) -> None:
        """Report a message, with all of its deliveries."""
        deliveries = "".join(f"\n  {one}" for one in self._came[body])
        self._say(f"{body} {text}; done: {self.acked.get(body)}; {deliveries}")

    def _say(self, text: str) -> None:
        with self._lock:
            self.wrong.append(text)

    def _receive_the_rest(self) -> None:
        deadline = time.monotonic() + 60
        with self._consumer() as consumer:
            consumer.subscribe(self.topic)
            while self._missing() and time.monotonic() < deadline:
                try:
                    found = consumer.receive(32, invisible=10.0, wait=1.0)
                except RmqError:
                    continue
                for message in found:
                    delivery = popped_of(message)
                    self._note(delivery)
                    self._ack(consumer, message, delivery)
            for message in consumer.receive(32, invisible=10.0, wait=3.0):
                self._note(popped_of(message))
