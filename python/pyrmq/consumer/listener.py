"""The threads that call listeners.

A thread takes a batch: some messages of one queue. It calls the listener for each, and reports the
outcomes at the end. A batch has as many messages as can be handled in a few milliseconds: one if
calls are slow, so that other threads get the rest, and hundreds if they are fast, so that a message
costs little more than its call.

Another thread, the watch, checks for batches that take longer. It gives the messages after a slow
call to other threads, and also the message of a call past its time limit.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from time import monotonic
from typing import TYPE_CHECKING

from pyrmq._client.failure_log import kind_of
from pyrmq._client.values import milliseconds
from pyrmq.consumer.call import Failed, UnfitBody, failure_of, raising
from pyrmq.consumer.outcome import LATER, failure_of_error, failure_of_result, hand_back_time
from pyrmq.errors import ClosedError, ForkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyrmq._client.hooks.consume import ConsumeHooks
    from pyrmq._client.options.consumer import ListenerOptions
    from pyrmq._core import ListeningConsumer, Work
    from pyrmq.consumer.call import Call
    from pyrmq.consumer.outcome import Failure
    from pyrmq.message import ReceivedMessage

__all__ = ["Counts", "Pool"]

_log = logging.getLogger("pyrmq.consumer")

_BATCH_S = 0.002
"""Time that the messages of one batch should take."""
_SLOW_S = 0.02
"""After a longer call the messages that follow go to other threads."""
_IDLE_S = 0.25
"""Time between two checks of the watch while no batch is slow."""
_QUIET_CHECKS = 4
"""Checks of idle threads after which the watch waits until one of them has a batch."""
_MAX_BATCH = 1024
"""Messages of one batch at most."""
_WAIT_MS = 3_600_000
"""Time of one wait for messages. Any other work of the thread ends it."""
_MEND_S = 0.1
"""Pause of a thread after an error of the consumer itself, which may recur at once."""


class Counts:
    """Messages that listeners have handled. The native consumer counts failures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.done = 0
        self.timed_out = 0

    def add(self, done: int, timed_out: int = 0) -> None:
        """Count messages whose calls have ended."""
        with self._lock:
            self.done += done
            self.timed_out += timed_out


class Batch:
    """Messages that one thread has taken.

    The thread and the watch claim them from `claims`, those of one call at a time. Each is claimed
    once, and the claimant reports its outcome.
    """

    def __init__(
        self, messages: list[ReceivedMessage], work: Work, at_once: int, *, is_last: bool
    ) -> None:
        self.messages = messages
        self.work = work
        self.claims = iter(range(0, len(messages), at_once))
        self.at_once = at_once
        self.is_last = is_last  # Taken while the consumer ends; handled nevertheless.
        self.began = monotonic()
        self.index = 0  # The first message of the call that runs.
        self.said = 0  # The outcomes of the messages before this one are reported.
        self.failed: Failed = []
        self.is_cut = False  # The messages after the running call were given away.
        self.is_abandoned = False  # Its own were, too: its outcome is ignored.
        # Held while an outcome is reported, so that the watch and the thread do not both do it.
        self.lock = threading.Lock()

    def after(self, index: int) -> int:
        """Return the index after a call's messages."""
        return min(index + self.at_once, len(self.messages))

    def rest(self) -> list[tuple[int, int]]:
        """Claim all that is left, as ranges of indexes without gaps."""
        ranges: list[tuple[int, int]] = []
        for first in self.claims:
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], self.after(first))
            else:
                ranges.append((first, self.after(first)))
        return ranges

    def failed_in(self, first: int, end: int) -> Failed:
        """Return what failed in a range."""
        return [one for one in self.failed if first <= one[0] < end]


class Pool:
    """The threads of a consumer.

    Args:
        core: The native consumer.
        calls: The listener of each topic.
        options: The consumer's options.
        hooks: What sees each call, and the log of failures.
    """

    def __init__(
        self,
        core: ListeningConsumer,
        calls: Mapping[str, Call],
        options: ListenerOptions,
        hooks: ConsumeHooks,
    ) -> None:
        self.core = core
        self._hooks = hooks
        self._failures = hooks.failures
        self._has_hooks = False  # Read for each message.
        self.counts = Counts()
        self._calls = calls
        self._options = options
        self._group = options.group
        self._number = 0
        self._lock = threading.Lock()
        self._batches: dict[threading.Thread, Batch | None] = {}
        self._stuck: set[threading.Thread] = set()
        self._is_ending = False
        self._is_over = False  # The time for a clean end has passed: no further call begins.
        self._is_ended = threading.Event()
        # Set to wake the watch: a batch has arrived while it slept, or the consumer ends.
        self._has_work = threading.Event()
        self._watch_sleeps = False
        name = f"pyrmq-listener-watch-{self._group}"
        self._watch = threading.Thread(target=self._keep_watch, name=name, daemon=True)

    def start(self) -> None:
        """Start the threads."""
        self._has_hooks = bool(self._hooks)
        for _ in range(self._options.threads):
            self._add_thread()
        self._watch.start()

    def stacks(self) -> str:
        """Return the stacks of the listeners' threads, in the form of a thread dump."""
        frames = sys._current_frames()
        texts = []
        for thread, batch in [*self._batches.items()]:
            frame = frames.get(thread.ident or 0)
            if frame is not None:
                state = "in a call" if batch is not None else "waiting"
                stack = "".join(traceback.format_stack(frame))
                texts.append(f'"{thread.name}" {state}\n{stack}')
        return "\n".join(texts)

    def consume_directly(self, message: ReceivedMessage) -> tuple[str, str | None]:
        """Call the listener for a message that an operator has chosen."""
        try:
            call = self._calls[message.topic]
            argument = call.argument(message)
            given = argument if self._options.consume_batch == 1 else [argument]
            failure = failure_of_result(call.function(given))
        except BaseException as error:  # noqa: BLE001 - the answer says it
            failure_of(self._failures, self._group, message, error)
            return "raised", repr(error)
        return ("success", None) if failure is None else ("later", None)

    def is_mine(self, thread: threading.Thread) -> bool:
        """Whether a thread calls listeners."""
        return thread in self._batches or thread in self._stuck

    def end(self, timeout: float) -> bool:
        """Take nothing new and wait for the running calls. False: some still run.

        Messages that were given back before later ones of their queue are handled, too: the group
        could not commit those later ones otherwise, and they would be delivered again.
        """
        self._is_ending = True
        self.core.drain(0)
        until = monotonic() + timeout
        while any(one.is_alive() for one in [*self._batches]) and monotonic() < until:
            self._is_ended.wait(0.005)
        self._is_over = True
        self._is_ended.set()
        self._has_work.set()
        self.core.drain(milliseconds("timeout", hand_back_time(until - monotonic())))
        return not any(self._batches.values())

    def join(self, timeout: float) -> None:
        """Wait for the threads; one that is stuck in a call keeps running.

        The native consumer is closed. A start that was interrupted comes here without :meth:`end`.
        """
        self._is_over = True
        self._is_ended.set()
        self._has_work.set()
        until = monotonic() + timeout
        for thread in [*self._batches, self._watch]:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(max(0.0, until - monotonic()))

    def _add_thread(self) -> None:
        self._number += 1
        name = f"pyrmq-listener-{self._group}-{self._number}"
        thread = threading.Thread(target=self._take_batches, name=name, daemon=True)
        self._batches[thread] = None
        thread.start()

    def _take_batches(self) -> None:
        me = threading.current_thread()
        take, at_once = self.core.take, self._options.consume_batch
        size = at_once
        while not self._is_over:
            batch: Batch | None = None
            try:
                taken = take(size, _WAIT_MS)
                if taken is None:
                    continue
                batch = Batch(*taken, at_once, is_last=self._is_ending)
                self._batches[me] = batch
                if self._watch_sleeps:
                    self._has_work.set()
                self._handle(batch)
                seconds = monotonic() - batch.began
                size = max(at_once, _next_size(size, len(batch.messages), seconds))
            except (ClosedError, ForkError):
                return
            except BaseException as error:  # noqa: BLE001 - no error may end this thread
                text = "group %s: an error of the consumer; its messages will be delivered again"
                self._failures.add(text, self._group, kind=kind_of(error), error=error)
                self._is_ended.wait(_MEND_S)
            finally:
                is_mine = batch is None or not batch.is_abandoned or self._rejoin(me)
                if is_mine and me in self._batches:
                    self._batches[me] = None
            if not is_mine:
                return

    def _rejoin(self, me: threading.Thread) -> bool:
        """Go on after a call that took too long, unless another thread has taken the place."""
        with self._lock:
            self._stuck.discard(me)
            if len(self._batches) >= self._options.threads:
                return False
            self._batches[me] = None
            return True

    def _handle(self, batch: Batch) -> None:
        """Call listeners for the messages of a batch, and report the outcomes."""
        keeps_queue = self._options.order == "queue"
        call = self._call_one if batch.at_once == 1 else self._call_list
        index = end = 0
        try:
            for index in batch.claims:
                if index != end:
                    # The watch has claimed those in between: report the ones before separately.
                    self._say(batch, end)
                    batch.said = index
                may_go_on = not (self._is_over if batch.is_last else self._is_ending)
                if keeps_queue and may_go_on:
                    may_go_on = self.core.holds(batch.work)
                if not may_go_on:
                    self._give_back(batch, index)
                    return
                batch.index = index
                failed = call(batch.messages, index, batch.after(index))
                end = batch.after(index)
                if failed:
                    batch.failed += failed
                    if keeps_queue:
                        # Those that follow wait until these are done.
                        self._say(batch, end, [*batch.rest()])
                        return
                if batch.is_abandoned:
                    return
            self._say(batch, end)
        except BaseException:
            self._mend(batch, index, end)
            raise

    def _mend(self, batch: Batch, index: int, end: int) -> None:
        """After an error of the consumer itself, give back all that a thread has.

        Args:
            batch: The batch.
            index: The first message of what the thread has claimed last.
            end: The calls of the messages before this one have returned.
        """
        ranges = batch.rest()
        with batch.lock:
            if batch.is_abandoned:
                return
            first, batch.said = batch.said, len(batch.messages)
            ranges = [(first, end), (max(index, end), batch.after(index)), *ranges]
            if self._options.order == "queue":
                # In one step: no message may be handed out before an earlier one.
                ranges = [(first, len(batch.messages))]
            later = {at for at, *_ in batch.failed} | {*range(end, batch.after(index))}
            for first, until in ranges:
                failed = [(at, *LATER) for at in range(first, until) if at in later]
                untouched = range(max(first, batch.after(index)), until)
                given = [(at, "untouched", 0) for at in untouched]
                self.core.finish(batch.work, first, max(first, until), [*failed, *given])
                self.counts.add(max(0, until - first) - len(failed) - len(given))

    def _say(self, batch: Batch, end: int, untouched: Sequence[tuple[int, int]] = ()) -> None:
        """Report the outcomes of the messages up to `end`; those in `untouched` go to others."""
        with batch.lock:
            if batch.is_abandoned:
                return
            first = batch.said
            failed = batch.failed_in(first, end)
            given = [(at, "untouched", 0) for a, b in untouched for at in range(a, b)]
            until = untouched[-1][1] if untouched else end
            if until > first:
                self.core.finish(batch.work, first, until, [*failed, *given])
            batch.said = max(end, first)
            self.counts.add(max(0, end - first) - len(failed))

    def _give_back(self, batch: Batch, index: int) -> None:
        """Give what a thread has claimed, and the rest, to others."""
        self._say(batch, index)
        ranges = [(index, batch.after(index)), *batch.rest()]
        if ranges[0][1] == (ranges[1][0] if len(ranges) > 1 else -1):
            ranges[:2] = [(ranges[0][0], ranges[1][1])]
        with batch.lock:
            if not batch.is_abandoned:
                self._finish_untouched(batch, ranges)

    def _finish_untouched(self, batch: Batch, ranges: Sequence[tuple[int, int]]) -> None:
        for first, end in ranges:
            untouched = [(at, "untouched", 0) for at in range(first, end)]
            self.core.finish(batch.work, first, end, untouched)

    def _call_one(self, messages: list[ReceivedMessage], index: int, _end: int) -> Failed | None:
        message = messages[index]
        try:
            topic = message.topic
            call = self._calls[topic]
            if self._has_hooks:
                failure = self._hooks.process(
                    topic,
                    [message],
                    lambda: failure_of_result(call.function(call.argument(message))),
                    failure_of_error,
                )
            else:
                argument = message if call.decode is None else call.argument(message)
                result = call.function(argument)
                failure = None if result is None else failure_of_result(result)
        except BaseException as error:  # noqa: BLE001 - sys.exit must not end this thread
            failure = failure_of(self._failures, self._group, message, error)
        return None if failure is None else [(index, *failure)]

    def _call_list(self, messages: list[ReceivedMessage], index: int, end: int) -> Failed:
        """Call listeners with lists, one for each topic; a body that does not fit is in none."""
        failed: Failed = []
        topics: dict[str, list[tuple[int, object]]] = {}
        for at in range(index, end):
            message = messages[at]
            try:
                topic = message.topic
                argument = self._argument(message)
                topics.setdefault(topic, []).append((at, argument))
            except BaseException as error:  # noqa: BLE001 - as above
                outcome = failure_of(self._failures, self._group, message, error)
                failed.append((at, *outcome))
        for topic, arguments in topics.items():
            try:
                failure = self._call_topic(topic, arguments, messages)
            except BaseException as error:  # noqa: BLE001 - as above
                message = messages[arguments[0][0]]
                failure = failure_of(self._failures, self._group, message, error)
            if failure is not None:
                failed += [(at, *failure) for at, _ in arguments]
        return sorted(failed)

    def _argument(self, message: ReceivedMessage) -> object:
        """Decode a message of a list; hooks see one that does not fit, since no call gets it."""
        call = self._calls[message.topic]
        try:
            return call.argument(message)
        except UnfitBody as error:
            if self._has_hooks:
                self._hooks.process(message.topic, [message], raising(error), failure_of_error)
            raise

    def _call_topic(
        self, topic: str, arguments: list[tuple[int, object]], messages: list[ReceivedMessage]
    ) -> Failure | None:
        function = self._calls[topic].function
        given = [argument for _, argument in arguments]
        if not self._has_hooks:
            return failure_of_result(function(given))
        concerned = [messages[at] for at, _ in arguments]
        return self._hooks.process(
            topic, concerned, lambda: failure_of_result(function(given)), failure_of_error
        )

    def _keep_watch(self) -> None:
        """Check for calls that take long."""
        seen: dict[threading.Thread, tuple[Batch, int, float]] = {}
        pause = _IDLE_S
        quiet = 0
        while not self._is_ended.wait(pause):
            quiet = 0 if any([*self._batches.values()]) else quiet + 1
            if quiet >= _QUIET_CHECKS:
                self._sleep_until_work()
                quiet = 0
            now = monotonic()
            pause = _IDLE_S
            for thread, batch in [*self._batches.items()]:
                if batch is None:
                    seen.pop(thread, None)
                    continue
                pause = min(_SLOW_S, self._options.time_limit / 4)
                last, index, since = seen.get(thread, (None, -1, now))
                if last is not batch or index != batch.index:
                    since = now
                    seen[thread] = (batch, batch.index, now)
                try:
                    self._check(thread, batch, now, since)
                except Exception as error:  # noqa: BLE001 - it watches all other calls, too
                    text = "group %s: messages behind a slow call were not passed on"
                    self._failures.add(text, self._group, kind=kind_of(error), error=error)

    def _sleep_until_work(self) -> None:
        self._has_work.clear()
        self._watch_sleeps = True
        # Finds threads that took a batch before they could see this.
        if not any([*self._batches.values()]) and not self._is_ended.is_set():
            self._has_work.wait()
        self._watch_sleeps = False

    def _check(self, thread: threading.Thread, batch: Batch, now: float, since: float) -> None:
        """React to the time that a batch and its call have taken."""
        if now - since >= self._options.time_limit:
            self._abandon(thread, batch)
        elif now - batch.began >= _SLOW_S and not batch.is_cut and self._options.order != "queue":
            self._cut(batch)

    def _cut(self, batch: Batch) -> None:
        """Give the messages after a call to other threads; those before it are done."""
        batch.is_cut = True
        ranges = batch.rest()
        with batch.lock:
            self._finish_untouched(batch, ranges)
        self._say(batch, batch.index)

    def _abandon(self, thread: threading.Thread, batch: Batch) -> None:
        """Give the message of a call past its time limit to another thread."""
        self._say(batch, batch.index)
        ranges = batch.rest()
        with batch.lock, self._lock:
            if self._batches.get(thread) is not batch or batch.said > batch.index:
                return
            batch.is_abandoned = True
            index, end = batch.index, batch.after(batch.index)
            stuck = [(at, "later", 0) for at in range(index, end)]
            untouched = [(at, "untouched", 0) for a, b in ranges for at in range(a, b)]
            until = ranges[-1][1] if ranges and self._options.order == "queue" else end
            inside = [one for one in untouched if one[0] < until]
            self.core.finish(batch.work, index, until, [*stuck, *inside])
            if self._options.order != "queue":
                self._finish_untouched(batch, ranges)
            self.counts.add(0, timed_out=len(stuck))
            del self._batches[thread]
            self._stuck = {one for one in self._stuck if one.is_alive()} | {thread}
            may_add = len(self._stuck) <= self._options.threads
            if may_add:
                self._add_thread()
        self._report(thread, batch.messages[index])
        if not may_add:
            text = "group %s: %d calls of listeners hang; no thread is started until one returns"
            self._failures.add(text, self._group, len(self._stuck))

    def _report(self, thread: threading.Thread, message: ReceivedMessage) -> None:
        frame = sys._current_frames().get(thread.ident or 0)
        place = (frame.f_code.co_filename, frame.f_lineno) if frame else None
        stack = "".join(traceback.format_stack(frame)) if frame else "(its thread has ended)"
        self._failures.add(
            "group %s: a listener has not returned within %g s for %r; the message will be "
            "delivered again, and the outcome of the call is ignored",
            self._group,
            self._options.time_limit,
            message,
            kind=(message.topic, place),
            stack=f". Its stack:\n{stack}",
        )


def _next_size(size: int, handled: int, seconds: float) -> int:
    """Return how many messages fit into one batch, at most twice as many as in the last."""
    if seconds * size > _BATCH_S * handled:
        return max(1, int(_BATCH_S * handled / seconds))
    return min(_MAX_BATCH, size * 2)
