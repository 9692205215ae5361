"""Keeps retired names out of identifiers, coined words out of prose, and FIXME out of all files.

Plain English needs a reader; this test enforces what a machine can check. A name is retired if the
field has a better one (Apache's, Kafka's, tokio's, std's). ARCHITECTURE.md, "Words", lists the few
of our own.
"""

from __future__ import annotations

import functools
import io
import re
import subprocess
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.rust_source import product_code

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 120
CELL = 400
"""Maximum number of characters of a table's cell. The generated pages keep to it, too."""

# Whole identifiers that must not come back, with their replacements.
RETIRED = {
    "ATTEMPTS_KEPT": "MAX_RECORDED_ATTEMPTS",
    "Access": "ReadMode",
    "Alarm": "Wakeup",
    "AlarmState": "WakeupState",
    "Ask": "OutboundRequest or PendingPull",
    "Asker": "ResponseHandler",
    "Asking": "Lookup or RequestMixin",
    "Attending": "WakeRegistration",
    "Away": "InFlightBatch",
    "Bell": "PipeSignal or Wakeup",
    "Better": "StoredBelowLevel",
    "Brake": "BusyReason",
    "Brakes": "FlowControl",
    "Buffers": "ReadBuffers",
    "BurstEnd": "BatchEnd",
    "Chore": "MaintenanceTask",
    "Commit": "GroupCommit",
    "Delivery": "SendFuture",
    "Destination": "TargetRef",
    "Draft": "OutgoingMessage or PendingMessage",
    "EVERY": "CHECK_INTERVAL",
    "Exchange": "RequestReply",
    "Extended": "ConsumeQueueExt",
    "Extras": "MessageProperties",
    "FEWEST_SLOTS": "MIN_SLOTS",
    "FIND_AGAIN": "FIND_ATTEMPTS",
    "FIRST_ROOM": "FIRST_CAPACITY",
    "Filled": "BufferLengths",
    "Followed": "Rerouted",
    "Full": "WindowFull",
    "Gathered": "BatchCollector",
    "Gathering": "AccumulatorEnd",
    "HELD_UP": "SLOW_AFTER",
    "HOUSE_TICK": "MAINTENANCE_TICK",
    "INDEX_MOST": "INDEX_BLOCK_AT",
    "INDEX_NOW": "INDEX_HELP_AT",
    "INDEX_SOON": "INDEX_WAKE_AT",
    "InBurst": "InBatch",
    "InLine": "QueuedAcquire",
    "Inbox": "CompletionQueue",
    "KEPT": "POOL_BYTES",
    "LEAST_CREDIT": "MIN_CREDIT",
    "LEAST_LOOKED_AT": "MIN_SCANNED",
    "LOOK": "CHECK_INTERVAL or DISK_CHECK or EXPIRY_INTERVAL",
    "LOOK_EVERY": "AGE_CHECK_EVERY",
    "Landed": "BatchOutcome",
    "Landing": "CompletedFrames",
    "Lane": "PartitionQueue",
    "Left": "Departures",
    "Looked": "Inspected",
    "MOST_A_ROUND": "MAX_PER_ROUND",
    "MOST_GATHERED": "MAX_COLLECTED",
    "MOST_HOPS": "MAX_HOPS",
    "MOST_SCANNED": "MAX_SCANNED",
    "Manner": "ConsumeMode or SendMode",
    "Met": "ReplayedEntry",
    "NARROWEST": "MIN_WINDOW",
    "NEWEST": "AVERAGE_WEIGHT",
    "NICE": "NICE_VALUE",
    "Names": "PropertyNames",
    "News": "RegistrationEvents",
    "Noted": "RecordedRange",
    "OffsetsRest": "UnknownOffsetFields",
    "OnHeldUp": "OnSlowFlush",
    "Others": "UnknownFields",
    "Outcomes": "CompletionList",
    "OwnBatch": "BatchSettings",
    "PASSING_CODES": "TRANSIENT_CODES",
    "PATIENCE": "TIMEOUT, or what it bounds",
    "PATIENCE_LEAST": "MIN_TIMEOUT_CHECK",
    "PATIENCE_MOST": "MAX_TIMEOUT_CHECK",
    "Packed": "EncodedBody",
    "Parked": "AwaitingRoute",
    "Placed": "Appended",
    "Places": "QueueRefs",
    "Producing": "ProducerBase",
    "Published": "RouteView or TopicPublishInfo",
    "PyExchange": "PyRequestReply",
    "QueueEnds": "QueueManifest",
    "Quick": "BorrowedRegistration",
    "REGISTERING": "REGISTRATION_ATTEMPTS",
    "REGISTERING_PAUSE": "REGISTRATION_PAUSE",
    "REST": "RELEASE_INTERVAL",
    "REST_LEAST": "MIN_SLOTS_PER_ROUND",
    "REST_ROUNDS": "IDLE_ROUNDS",
    "REST_VISITS": "MIN_IDLE_VISITS",
    "Reach": "QueueRange",
    "Readers": "ColdReadPool",
    "SCRATCH": "APPEND_BUFFER",
    "SHARE_FROM": "PARALLEL_FROM",
    "SHRINK_AGAIN": "SHRINK_INTERVAL",
    "SUSPECT_AGAIN": "STALE_INTERVAL",
    "SYNC_AGAIN": "SYNC_RETRY",
    "SYNC_ALL": "SYNC_FILE_SYSTEM_FROM",
    "Said": "BrokerFields",
    "Scratch": "AppendBuffer",
    "Seat": "BrokerEntry",
    "Seats": "BrokerEntries",
    "Settled": "RegistrationState",
    "SharedOutcomes": "SharedCompletions",
    "Shown": "RouteData",
    "Soon": "CallbackQueue",
    "Sound": "ValidLog",
    "TELL": "LOG_INTERVAL or PROGRESS_INTERVAL",
    "TURN": "NEXT",
    "TURN_FRAMES": "POLL_FRAMES",
    "TURN_FRAME_BYTES": "BYTES_PER_FRAME",
    "Ticket": "Completion",
    "Trouble": "RetryState",
    "Turn": "PermitState",
    "Turns": "FlushLeader or LargeFramePermits",
    "UNMEASURED": "INITIAL_AVERAGE_NS",
    "WAITS_NOT": "WAIT_FALSE",
    "WRITE_AT": "FLUSH_AT",
    "WaitingKeys": "PendingKeys",
    "Walk": "Replay",
    "Want": "Condition",
    "YOUNG": "NEW_GROUP_INTERVALS",
    "_Extras": "_MessageProperties",
    "_Place": "_QueueRef",
    "_exchange": "_request_reply",
    "_gathering": "_batcher",
    "_new_room": "_new_waiting_sends",
    "_room": "_waiting_sends",
    "_soon": "_callback_queue",
    "_soon_of": "_callback_queue_of",
    "_with_room": "_with_capacity",
    "access": "mode",
    "alarm": "wakeup",
    "ask_first": "pull_first",
    "ask_front_again": "retry_front",
    "asked_again": "is_resent",
    "asked_for_segment": "requested_segment",
    "at_burst_end": "on_batch_end",
    "attending": "registered or wake_registration",
    "bear": "retry_later",
    "beat_within": "send_within",
    "begin_again": "start_over",
    "bell": "pipe_signal or wakeup",
    "brake": "busy_reason",
    "brakes": "flow_control",
    "bring": "record",
    "bring_all": "record_all",
    "burst": "append_batch",
    "burst_end": "batch_end",
    "bursts": "batches",
    "check_brakes": "check_flow_control",
    "check_room": "check_capacity",
    "chore": "task",
    "depart": "dispatch or launch or on_dispatch",
    "draft": "outgoing or pending or prepare",
    "drafts": "outgoings or pendings",
    "end_burst": "commit_batch or end_batch",
    "enliven": "mark_live",
    "enter_anyway": "force_acquire",
    "entered": "acquired",
    "fall_back": "record_clock_regression",
    "falls": "clock_regressions",
    "find_way": "retry_target",
    "follow_young": "rebalance_new_member",
    "forget_live": "remove_live",
    "gates": "back_pressures",
    "gathered_to": "collected_to",
    "gathering": "accumulator",
    "give_ticket": "attach_completion",
    "gives_up": "exceeds_retries",
    "go_round": "ask_in_turn",
    "greet": "send_all",
    "hand_keys": "move_keys",
    "hand_on": "deliver or publish",
    "hang_up": "close_connections",
    "hinted": "is_there",
    "hopeless": "is_final",
    "house_alarm": "maintenance_wakeup",
    "in_burst": "in_batch",
    "inbox": "completion_queue",
    "index_alarm": "index_wakeup",
    "inner_root": "no_path",
    "is_gathered": "is_accumulated",
    "is_quick": "is_fast",
    "is_ripe": "is_ready",
    "is_roomy": "has_spare_capacity",
    "is_settled": "is_unchanged",
    "joins_bursts": "joins_batch",
    "keys_to": "keys_end",
    "land": "handle_response or on_response",
    "landed_for_a_loop": "completed_for_loop",
    "lane": "partition",
    "lanes": "partitions",
    "last_parked": "last_awaiting",
    "late_at": "expires_at",
    "lay_out": "encode",
    "lay_out_accepted": "encode_accepted",
    "lay_out_batch": "encode_batch",
    "lay_out_target": "encode_for_queue",
    "leave_cluster": "remove_from_cluster",
    "leave_other_name": "remove_other_name",
    "leaving": "removal",
    "line_up": "enqueue_acquire",
    "look_for_silent": "expire_silent",
    "lowest_left": "min_id_change_after",
    "master_for_slave": "master_for",
    "master_of": "master_for",
    "meet_to": "heartbeat_to",
    "met": "entries or entry",
    "note_reach": "record_ranges",
    "offsets_rest": "unknown_offset_fields",
    "on_held_up": "on_slow_flush",
    "pace": "average_ns",
    "patience": "timeout",
    "patience_alarm": "timeout_wakeup",
    "permitted": "perms_version",
    "place_again": "requeue",
    "pump": "drain",
    "pumping": "draining",
    "put_batch_in_burst": "stage_batch",
    "put_in_burst": "stage",
    "put_now": "put_directly",
    "reach": "range",
    "reach_of": "range_of",
    "reaches": "covers",
    "read_elsewhere": "read_on_pool",
    "refuse_unbuilt": "refuse_unsupported",
    "register_with_news": "register_with_events",
    "rest_at": "release_cursor",
    "rested": "released",
    "ripe": "ready_at",
    "room_to": "capacity_to",
    "rung": "is_notified or notified",
    "seat": "broker_entry",
    "seats": "broker_entries",
    "segment_alarm": "segment_wakeup",
    "share_of": "attempt_timeout",
    "show_durable": "publish_durable",
    "slow_down": "shrink_window",
    "sound_part": "valid_part",
    "spreads": "expands",
    "step_back": "lower_priority",
    "suspect": "mark_stale",
    "suspected": "stale",
    "take_back": "undo_positions",
    "take_filters": "apply_filters",
    "take_gathered": "finish",
    "take_late": "take_expired",
    "ticket": "completion or next_order or order",
    "tickets": "completions",
    "touched": "queues_version",
    "try_enter": "try_acquire",
    "turn_away": "fail_awaiting",
    "walk_from": "replay_from",
    "want": "condition",
    "way_back": "reply_address",
    "when_durable_in_burst": "when_durable_in_batch",
    "write_unless": "commit_unless",
    "IDS_FOR_EACH_NAME": "MEAN_IDS_PER_NAME",
    "IDS_PER_NAME": "MAX_IDS_PER_NAME",
    "Rest": "Remaining",
    "answer_places": "answer_indexes",
    "look_at_names": "add_rights_to_names",
    "look_at_subscriptions": "add_rights_to_subscriptions",
    "tell_errors_to": "set_error_handler",
    "distrust": "require_rewrite",
    "distrust_queues": "mark_queues_undurable",
    "distrust_short": "mark_short_damaged",
    "drop_found": "drop_unexplained_units",
    "own_last": "unshare_last_segment",
    "straighten": "repair_for_rebuild",
    "straighten_damaged": "repair_damaged",
    "Got": "GetMessageResult",
    "look_at_disk": "check_disk_space",
    "LONGEST_ENTRY": "MAX_ENTRY_BYTES",
    "MOST_FAILURES": "MAX_FAILURES",
    "MOST_FILE_BYTES": "MAX_FILE_BYTES",
    "GATHERED": "MAX_STAGED_BYTES",
    "note_all_unsynced": "list_all_unsynced",
    "note_changed": "mark_changed",
    "note_clock_regression": "record_clock_regression",
    "note_damage": "report_damage",
    "note_failure": "handle_failure",
    "note_full": "refuse_if_full",
    "note_ranges": "record_ranges",
    "note_torn_looking": "record_torn_looking",
    "note_unsure": "record_unsure",
    "note_unsynced": "list_unsynced",
    "note_unwritten": "list_unwritten or handle_write_failure",
    "take_out_dangling": "clear_dangling",
    "Answered": "UnreadableAnswer",
    "HELD_AT_LEAST": "MIN_HOLD",
    "LARGEST_ANSWER": "MAX_ANSWER_BYTES",
    "Questions": "BrokerRequests",
    "Standing": "ListenerDemand",
    "are_for": "set_consumer",
    "ask_any": "request_any",
    "ask_within": "request_within",
    "asked_from": "requested_from",
    "asked_offset": "pull_offset",
    "commit_asked": "commit_for_call",
    "held_up": "needs_timer",
    "plan_standing": "plan_for_listeners",
    "requeue_single": "requeue_alone",
    "take_accumulated": "finish",
    "tell_state": "send_running_info",
    "asked_level": "requested_level",
    "FirstUse": "AutoCreate",
    "FirstUses": "AutoCreateQueue",
    "first_uses": "auto_create",
    "is_worked_off": "has_worker",
    "make_noted": "create_recorded",
    "may_make_group": "may_create_group",
    "needs_of_heartbeat": "missing_of_heartbeat",
    "needs_of_locks": "missing_of_locks",
    "LONGEST_WAIT_MS": "MAX_WAIT_MS",
    "TopicFigures": "TopicMetrics",
    "GroupFigures": "GroupMetrics",
    "LOOKS": "PEEKS",
    "MOST_MESSAGES": "MAX_MESSAGES",
    "MOST_BITS": "MAX_BITS",
    "MOST_ENTRIES": "MAX_ENTRIES",
    "MOST_SEARCHES": "MAX_SEARCHES",
    "LONGEST_ID": "MAX_ID_BYTES",
    "LONGEST_GROUP": "MAX_GROUP_BYTES",
    "ORDERS_LONGEST": "MAX_ORDERS_PAUSE",
    "YOUNG_BYTES": "NEW_GROUP_FROM_START_BYTES",
    "is_young": "is_read_from_start",
    "young_bytes": "new_group_from_start_bytes",
    "SEARCH_PATIENCE": "SEARCH_TIMEOUT",
    "ConsumerBeat": "ConsumerHeartbeat",
    "beat_consumer": "register_consumer",
    "beat_producer": "register_producer",
    "RETRY_NAME_LIMIT": "RETRY_TOPIC_LIMIT",
    "made_by": "create_as_user",
    "topic_makers": "topic_creators",
    "get_or_make": "get_or_create",
    "consumer_beat": "register_consumer",
    "ASKED_LIMIT": "MAX_BROKER_REQUESTS",
    "CANNOT_TELL": "CACHE_UNKNOWN",
    "FIRST_LOOK": "FIRST_SLEEP",
    "GOODBYE": "UNREGISTER_TIME",
    "LAST_LOOK": "MAX_SLEEP",
    "LOOK_AGAIN": "CHECK_INTERVAL",
    "LOOK_BACK": "MAX_SEARCHED_BACK",
    "NotAsked": "NotBegun",
    "OnLongWait": "BlockInPlace",
    "ask_again": "request_with_retries",
    "ask_in_turn": "request_in_turn",
    "ask_once": "request_once",
    "close_unused": "close_superseded",
    "goes_soon": "deleted_before",
    "goodbye": "unregistration",
    "has_asked_all": "has_popped_all",
    "has_few_asked": "has_spare_demand",
    "late_goodbye": "late_unregister",
    "lock_soon": "lock_within_limit",
    "long_wait": "block_in_place",
    "look_at_half": "check_partial",
    "on_long_wait": "set_block_in_place",
    "prepare_soon": "request_segment",
    "run_long": "block_in_place",
    "told_gone": "reported_gone",
    "wait_elsewhere": "wait_in_place_for",
    "wait_long": "block_in_place or wait_in_place",
    "write_and_ask": "copy_and_send_check",
}
# Constants of Rust for a bound: it is MAX_ or MIN_ and a noun.
SUPERLATIVE = re.compile(r"\b(?:const|static)\s+((?:MOST|LEAST|LONGEST)(?:_\w+)?)\s*:")
# Parts of identifiers, as `_snake_case` has them, that are retired in product code alone: tests may
# say what was told, and how soon. To look something up is everybody's, and records may look torn.
RETIRED_IN_PRODUCT = {
    r"apart": "in a thread of its own, separate or split",
    r"ask(?:s|ed|ing)?": "request, requested or check",
    r"goodbyes?": "unregister",
    r"looks?(?!_up|_torn)": "check, read, poll or snapshot",
    r"questions?": "request",
    r"(?<!call_)soon": "callback_queue, or the limit that is meant",
    r"tells?": "report, print or announce",
    r"told": "outcome, reported or on_delivery",
    r"wish(?:es)?": "filter or subscription",
}
# Public names, by file: `Client.ask`, whose calls are not looked at, and the argument of
# `SendHook.after_transaction`.
PUBLIC = {
    "python/pyrmq/remoting.py": {"ask"},
    "python/pyrmq/_client/hooks/send.py": {"asked"},
    "python/pyrmq/aio/transaction.py": {"asked"},
    "python/pyrmq/otel/send.py": {"asked"},
    "python/pyrmq/transaction.py": {"asked"},
}
# Modules in `src` that are compiled for tests alone.
TEST_MODULES = (
    "crates/broker/src/processor/site.rs",
    "crates/broker/src/processor/transaction/tests.rs",
    "crates/testkit/",
)
# Words of a former dialect in comments, docstrings and docs; in backticks they are identifiers.
COINED = {
    r"brake[sd]?|braking": "flow control",
    r"bursts?": "append batch, batch of requests",
    r"lanes?": "partition queue",
    r"seats?": "broker entry",
    r"bells?|rung": "wake-up, signal",
    r"chores?": "maintenance task",
    r"keeps? house|housekeeping": "maintenance",
    r"drafts?": "outgoing message, pending message",
    r"(?<!in )(?<!in-)flight": "send, request (`in flight` is everybody's)",
    r"landed": "finished, completed",
    r"manieth": "every Nth",
    r"so many": "the number, or its name",
    r"so (?:long|much)(?! that| as)": "the time or amount, or its name",
    r"told(?! apart)": "what was sent, announced or reported, and by what",
    r"(?:comes?|came|come) in through the gate|at the gate": "acquires capacity, in-flight limit",
}
# The demo's flights are aeroplanes'.
ELSEWHERE = ("examples/flights/", "tests/spark/test_demo.py")

RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | \b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes)
      | "(?:\\.|[^"\\])*"
      | b?'(?:\\(?:[nrt\\'"0]|x[0-9a-fA-F]{2}|u\{[^}]*\})|[^\\'\n])'""",
    re.DOTALL | re.VERBOSE,
)


# Calls whose texts reach a log; the end of one is found by counting its parentheses.
LOG_CALL = re.compile(r"\btracing::(?:trace|debug|info|warn|error)!\(|\b_log\.[a-z]+\(")


def _log_texts(text: str) -> Iterator[tuple[int, str]]:
    """The strings in calls that write to a log, with the numbers of their lines."""
    for call in LOG_CALL.finditer(text):
        depth = 1
        for match in re.compile(r'"(?:\\.|[^"\\])*"|[()]').finditer(text, call.end()):
            depth += {"(": 1, ")": -1}.get(match.group(), 0)
            if depth == 0:
                break
            if match.group()[0] == '"':
                yield text.count("\n", 0, match.start()) + 1, match.group()


def _files(*suffixes: str) -> list[Path]:
    done = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    paths = [ROOT / line for line in lines if line.endswith(suffixes)]
    return [path for path in paths if path.exists() and path != Path(__file__).resolve()]


def _rust(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return code without strings and comments, and the comments' lines with their numbers.

    A comment's first line is padded to the column where it starts.
    """
    code, comments, at = [], [], 0
    for match in RUST.finditer(text):
        code.append(text[at : match.start()])
        at = match.end()
        if match["comment"]:
            first = text.count("\n", 0, match.start()) + 1
            column = match.start() - (text.rfind("\n", 0, match.start()) + 1)
            lines = (" " * column + match["comment"]).split("\n")
            comments += [(first + number, line) for number, line in enumerate(lines)]
    code.append(text[at:])
    return " ".join(code), comments


def _python(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return names, and the lines of comments and docstrings with their numbers.

    As in `_rust`, but a comment after code is not padded: `# noqa` cannot be broken.
    """
    names, prose = [], []
    statement_begins = True
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            names.append(token.string)
        is_docstring = token.type == tokenize.STRING and statement_begins
        if token.type == tokenize.COMMENT or is_docstring:
            before = token.line[: token.start[1]]
            lines = ((before if before.isspace() else "") + token.string).split("\n")
            prose += [(token.start[0] + number, line) for number, line in enumerate(lines)]
        if token.type in {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}:
            statement_begins = True
        elif token.type not in {tokenize.COMMENT, tokenize.NL}:
            statement_begins = False
    return " ".join(names), prose


@functools.cache
def _identifiers_and_prose(path: Path) -> tuple[str, list[tuple[int, str]]]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".rs":
        return _rust(text)
    if path.suffix in {".py", ".pyi"}:
        return _python(text)
    return "", list(enumerate(text.split("\n"), 1))


def _retired(names: str) -> Iterator[str]:
    yield from sorted(set(re.findall(r"\w+", names)) & set(RETIRED))


@functools.cache
def _retired_part(name: str) -> str | None:
    """What to say instead of a name with a part that is retired in product code."""
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    found = (
        instead
        for pattern, instead in RETIRED_IN_PRODUCT.items()
        if re.search(rf"(?:^|_){pattern}(?=_|$)", snake)
    )
    return next(found, None)


def _retired_parts(names: str) -> Iterator[tuple[str, str]]:
    for name in sorted(set(re.findall(r"\w+", names))):
        instead = _retired_part(name)
        if instead is not None:
            yield name, instead


def _retired_in_product(path: Path) -> Iterator[tuple[str, str]]:
    file = str(path.relative_to(ROOT))
    if not re.match(r"python/|crates/\w+/src/", file) or file.startswith(TEST_MODULES):
        return
    text = product_code(path)
    names, _ = _rust(text) if path.suffix == ".rs" else _python(text.replace(".ask(", ".request("))
    allowed = {name for where, known in PUBLIC.items() if file.startswith(where) for name in known}
    yield from ((name, instead) for name, instead in _retired_parts(names) if name not in allowed)


def _coined(line: str) -> Iterator[tuple[str, str]]:
    plain = re.sub(r"`[^`]*`|\b\w*_\w*\b", "", line)
    for pattern, instead in COINED.items():
        for match in re.finditer(rf"\b(?:{pattern})\b", plain, re.IGNORECASE):
            yield match.group(), instead


def test_no_retired_name_is_an_identifier() -> None:
    found = []
    for path in _files(".rs", ".py", ".pyi"):
        names, _ = _identifiers_and_prose(path)
        found += [
            f"{path.relative_to(ROOT)}: {name} (say {RETIRED[name]})" for name in _retired(names)
        ]
        found += [
            f"{path.relative_to(ROOT)}: {name} (say {instead})"
            for name, instead in _retired_in_product(path)
        ]
    assert not found, "\n".join(found)


def test_bounds_are_named_max_or_min() -> None:
    found = []
    for path in _files(".rs"):
        code, _ = _identifiers_and_prose(path)
        found += [f"{path.relative_to(ROOT)}: {name}" for name in SUPERLATIVE.findall(code)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "pub(crate) const MOST: usize = 1;\nstatic LONGEST_PAUSE: u64 = 2;",
            ["MOST", "LONGEST_PAUSE"],
        ),
        ("impl Queue {\n    const LEAST_BYTES\n        : usize = 1;\n}", ["LEAST_BYTES"]),
        ("const HELD_AT_LEAST: u64 = 1; const MOSTLY: u64 = 2; // const MOST: u64", []),
        ('let text = "const MOST: u64"; fn most() -> usize { MOST }', []),
    ],
)
def test_the_scan_sees_bounds_by_other_names(text: str, names: list[str]) -> None:
    code, _ = _rust(text)
    assert SUPERLATIVE.findall(code) == names


def test_no_coined_word_stands_in_prose() -> None:
    found = []
    for path in _files(".rs", ".py", ".pyi", ".md"):
        name = str(path.relative_to(ROOT))
        if name.startswith(ELSEWHERE):
            continue
        _, prose = _identifiers_and_prose(path)
        texts = () if path.suffix == ".md" else _log_texts(path.read_text(encoding="utf-8"))
        for number, line in (*prose, *texts):
            if "flights" in line:
                continue
            found += [f"{name}:{number}: {word} (say {instead})" for word, instead in _coined(line)]
    assert not found, "\n".join(found)


def _unfinished(text: str, decisions: Container[str]) -> Iterator[tuple[int, str]]:
    """Marks of unfinished work, with the numbers of their lines.

    FIXME is always one, TODO unless it has the number of a decision: `TODO(0016)`.
    """
    for number, line in enumerate(text.splitlines(), 1):
        for mark in re.finditer(r"\bFIXME\b|\bTODO\b(?:\((\d{4})\))?", line):
            if mark[1] not in decisions:
                yield number, mark[0]


def test_no_work_is_left_behind_without_a_decision() -> None:
    decisions = {path.name[:4] for path in (ROOT / "docs" / "decisions").glob("*.md")}
    found = []
    for path in _files(""):
        content = path.read_bytes()
        if b"\0" in content:
            continue
        text = content.decode(errors="replace")
        name = path.relative_to(ROOT)
        found += [f"{name}:{number}: {mark}" for number, mark in _unfinished(text, decisions)]
    advice = "mend it, or let a decision say why it waits"
    assert not found, "\n".join([advice, *found])


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("// FIXME: it hangs\nx = 1  # FIXME(0016)", [(1, "FIXME"), (2, "FIXME")]),
        ("# TODO\n// TODO: later\n<!-- TODO(me) -->", [(1, "TODO"), (2, "TODO"), (3, "TODO")]),
        ("// TODO(9999): no such decision", [(1, "TODO(9999)")]),
        ("// TODO(0016): once callers can wait", []),
        ('todo = "deny"; PREFIXME TODOS', []),
    ],
)
def test_the_scan_sees_unfinished_work(text: str, marks: list[tuple[int, str]]) -> None:
    assert list(_unfinished(text, {"0016"})) == marks


def _wide(path: Path, prose: list[tuple[int, str]]) -> Iterator[tuple[int, int]]:
    """Numbers and lengths of lines that are too long and could be broken.

    Tables, drawings, headings, links and long spans of code cannot.
    """
    fenced = False
    for number, line in prose:
        bare = line.strip().lstrip("/!# ")
        if bare.startswith(("```", "~~~")):
            fenced = not fenced
        if len(line) <= WIDTH or fenced or bare.startswith(("|", "[")) or "   " in bare:
            continue
        spans = re.findall(r"`[^`]*`", line)
        if any(len(span) > 80 for span in spans) or (path.suffix == ".md" and line[0] == "#"):
            continue
        if " " in bare:
            yield number, len(line)


def test_lines_of_prose_end_at_120_columns() -> None:
    found = []
    for path in _files(".rs", ".py", ".pyi", ".md"):
        _, prose = _identifiers_and_prose(path)
        name = path.relative_to(ROOT)
        found += [f"{name}:{number}: {columns} columns" for number, columns in _wide(path, prose)]
    assert not found, "\n".join(found)


def _walls(text: str) -> Iterator[tuple[int, int]]:
    """Numbers of a page's lines with a table cell that is too long, and its length."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)
            yield from ((number, len(cell.strip())) for cell in cells if len(cell.strip()) > CELL)


def test_cells_of_tables_are_short() -> None:
    found = []
    for path in _files(".md"):
        name = path.relative_to(ROOT)
        walls = _walls(path.read_text(encoding="utf-8"))
        found += [f"{name}:{number}: {length} characters" for number, length in walls]
    assert not found, "give each fact a row, or a list below the table:\n" + "\n".join(found)


def test_the_scan_sees_long_cells() -> None:
    row = f"| a | {'b' * CELL} |\n| a | {'b' * CELL} \\| c |\n{'b' * CELL} c\n"
    assert list(_walls(row)) == [(2, CELL + 5)]


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("a.md", "word " * 25, [1]),
        ("a.md", "`a` and " + "words " * 15 + " to `b` with `c`, d, e, f, g", [1]),
        ("a.md", "what `" + "a command " * 12 + "` does", []),
        ("a.md", "```\n" + "word " * 25 + "\n```\n| " + "cell " * 25, []),
        ("a.rs", " " * 20 + "/// " + "word " * 20, [1]),
        ("a.rs", "/// " + "word " * 20, []),
        ("a.py", " " * 20 + "# " + "word " * 20, [1]),
    ],
)
def test_the_scan_sees_wide_lines(tmp_path: Path, name: str, text: str, lines: list[int]) -> None:
    path = tmp_path / name
    path.write_text(text.rstrip(), encoding="utf-8")
    _, prose = _identifiers_and_prose(path)
    assert [number for number, _ in _wide(path, prose)] == lines


@pytest.mark.parametrize(
    ("text", "names", "words"),
    [
        ("fn enliven() {} // a burst of it", ["enliven"], ["burst"]),
        ('let x = "enliven"; // many in flight, `lane` and flight_time', [], []),
        ("/* two lanes */ fn in_flight() {}", [], ["lanes"]),
        ("// So many are told.\n// They can be told apart.", [], ["So many", "told"]),
        ("// It waits so long. It waits so long that it ends.", [], ["so long"]),
    ],
)
def test_the_scan_sees_what_is_retired(text: str, names: list[str], words: list[str]) -> None:
    code, comments = _rust(text)
    assert list(_retired(code)) == names
    assert [word for _, line in comments for word, _ in _coined(line)] == words


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (
            "_ask_all Asks ASKED_LIMIT NotAsked task basket",
            ["ASKED_LIMIT", "Asks", "NotAsked", "_ask_all"],
        ),
        (
            "_LOOK_MS look_at LookAround look_up looked_up LookupError",
            ["LookAround", "_LOOK_MS", "look_at"],
        ),
        ("looks_torn torn_looking looks", ["looks"]),
        (
            "call_soon_threadsafe lock_soon _told _tell_damage toll",
            ["_tell_damage", "_told", "lock_soon"],
        ),
        (
            "late_goodbye wishes wishful _start_apart TheQuestion",
            ["TheQuestion", "_start_apart", "late_goodbye", "wishes"],
        ),
    ],
)
def test_the_scan_sees_retired_parts_of_names(names: str, found: list[str]) -> None:
    assert [name for name, _ in _retired_parts(names)] == found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            'tracing::info!(\n    group = of("so many"),\n    "told a (small) group"\n);',
            ["so many", "told"],
        ),
        ('_log.warning("%s: so many", name)\nf("told")', ["so many"]),
        ('let x = "told"; // tracing::info!', []),
    ],
)
def test_the_scan_sees_texts_of_logs(text: str, words: list[str]) -> None:
    assert [word for _, line in _log_texts(text) for word, _ in _coined(line)] == words
