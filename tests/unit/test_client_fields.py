"""The names of fields and members that Python's clients write and read by hand.

A misspelt name is no error: the server ignores what it does not know, and the client reads a
missing value. So each name is compared with the structures of `crates/remoting/src`, by the request
code of the function that has it.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyrmq.config import BrokerOptions, NameServerOptions

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
RUST = ROOT / "crates" / "remoting" / "src"
PYTHON = ROOT / "python" / "pyrmq"

SERVERS = ("broker/", "config/", "nameserver/", "server/")
"""Folders of the servers; `test_processors.py` looks at their handlers."""

WHOLE = ("_admin/", "_request_reply/", "_tables/brokers/", "admin.py")
"""Here each name is one of the wire. Elsewhere functions also have dicts of their own, so that
there a dict counts only if it is a request's: see `REQUESTS`."""

REQUESTS = {"fields", "filters", "name", "body"}
"""Variables that hold a request's fields or body."""

SENDS = {"Command", "ask", "request", "_request", "_request_list"}
"""Calls that send a dict among their arguments."""

WIRE = re.compile(r"\bRequestCode\.[A-Z]|\bparse_json\(|\bbody_of\(|\brequest\.fields\b")
"""What only a file with names of the wire has."""

CAMEL = re.compile(r"[a-z]+[A-Z]\w*")

CODES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "AUTH_CREATE_ACL": (("CreateAclRequestHeader", "AclInfo"), ()),
    "AUTH_CREATE_USER": (("CreateUserRequestHeader", "UserInfo"), ()),
    "AUTH_GET_USER": (("GetUserRequestHeader",), ("UserInfo",)),
    "AUTH_LIST_ACL": (("ListAclsRequestHeader",), ("AclInfo",)),
    "AUTH_LIST_USER": (("ListUsersRequestHeader",), ("UserInfo",)),
    "AUTH_UPDATE_USER": (("UpdateUserRequestHeader", "UserInfo"), ()),
    "DELETE_SUBSCRIPTIONGROUP": (("DeleteSubscriptionGroupRequestHeader",), ()),
    "GET_ALL_MESSAGE_REQUEST_MODE": ((), ("MessageRequestModeSerializeWrapper",)),
    "GET_BROKER_CONFIG": ((), ("options",)),
    "GET_BROKER_CONSUME_STATS": (("GetConsumeStatsInBrokerHeader",), ("ConsumeStatsList",)),
    "GET_NAMESRV_CONFIG": ((), ("options",)),
    "GET_TOPIC_CONFIG": (("GetTopicConfigRequestHeader",), ("TopicConfig",)),
    "INVOKE_BROKER_TO_RESET_OFFSET": ((), ("ResetOffsetBody",)),
    "QUERY_CONSUME_TIME_SPAN": (
        ("QueryConsumeTimeSpanRequestHeader",),
        ("QueryConsumeTimeSpanBody",),
    ),
    "QUERY_TOPIC_CONSUME_BY_WHO": (("QueryTopicConsumeByWhoRequestHeader",), ()),
    "SEND_MESSAGE": (("SendMessageRequestHeader",), ()),
    "SET_MESSAGE_REQUEST_MODE": (("SetMessageRequestModeRequestBody",), ()),
    "UPDATE_BROKER_CONFIG": (("options",), ()),
}
"""Structures that requests write, and those that their answers are read as; those of recorded
frames are in `crates/remoting/tests/golden.rs`."""

FUNCTIONS: dict[str, tuple[str, ...]] = {
    "_admin/requests.py queue_of": ("<MessageQueue",),
    "_request_reply/broker_requests.py RequestReply._take_reply": ("<ReplyMessageRequestHeader",),
    "_tables/brokers/remote.py RemoteCluster._offsets_once": ("GET_MAX_OFFSET",),
    "_tables/brokers/remote.py RemoteCluster._statistics": (">further topics",),
    "_tables/brokers/wire.py group_fields": (">QueryConsumerOffsetRequestHeader",),
    "_tables/brokers/wire.py pull_fields": ("PULL_MESSAGE",),
    "_tables/brokers/wire.py read_attributes": ("GET_TOPIC_CONFIG",),
    "_tables/brokers/wire.py read_stats": ("GET_TOPIC_STATS_INFO",),
    "admin.py Admin._request_name_server": ("<GetRouteInfoRequestHeader",),
    "admin.py _broker": ("<BrokerData",),
    "cli/broker/drain.py _held": ("<status",),
    "cli/broker/drain.py _lags": ("GET_CONSUME_STATS",),
    "cli/broker/drain.py run": ("<options",),
    "cli/broker/status.py _memory": ("<status",),
    "cli/broker/status.py _report_of": ("<status",),
    "cli/broker/status.py out_of_date": ("<status",),
    "cli/groups.py <module>": ("<SubscriptionGroupConfig",),
    "cli/secure.py <module>": ("<UserInfo",),
    "cli/secure.py _export": (">UserInfo",),
    "cli/secure.py _import": ("<UserInfo", "<AclInfo"),
    "dashboard/cluster.py Cluster.topics": ("GET_ALL_TOPIC_CONFIG",),
    "dashboard/sampling.py _own": ("<status",),
    "doctor/facts.py _broker": ("<status",),
    "doctor/facts.py _name_server": ("<status",),
    "doctor/facts.py _time_of": ("GET_BROKER_RUNTIME_INFO",),
    "doctor/probes.py _is_open": ("<options",),
    "doctor/probes.py _store": ("<status",),
    "doctor/probes.py broker_descriptors": ("<status",),
    "doctor/probes.py broker_disk": ("<options", "<status", "GET_BROKER_RUNTIME_INFO"),
    "doctor/probes.py broker_file_system": ("<options", "<status"),
    "doctor/probes.py broker_lost": ("<status",),
    "doctor/probes.py broker_memory": ("<status",),
    "doctor/probes.py broker_permission": ("<options",),
    "doctor/probes.py broker_read_only": ("<status",),
    "doctor/probes.py broker_version": ("GET_BROKER_RUNTIME_INFO",),
    "doctor/probes.py open_name_server": ("<options",),
    "doctor/probes.py revoked_certificates": ("<status",),
    "doctor/probes.py topic_permission": ("GET_ROUTEINFO_BY_TOPIC",),
    "doctor/probes.py two_with_one_identity": ("<status",),
    "transaction.py answer_of": ("<CheckTransactionStateRequestHeader",),
    "transaction.py checked_message": ("<CheckTransactionStateRequestHeader",),
}
"""What functions write (`>`) and read (`<`) for a code that another one has; or its code."""

OWN: dict[str, set[str]] = {
    "_request_reply/broker_requests.py RequestReply.store": {"queue"},
    "cli/broker/status.py _report_of": {"ready"},
    "cli/debug/bundle.py _tables": {"error"},
    "cli/secure.py _import": {"acls", "users"},
    "dashboard/changes.py Changes.set_option": {"options"},
}
"""Names in functions' own dicts and files."""

OUTSIDE = {
    "_UNIQUE_KEY_QUERY": "marks a search by unique id; Apache adds it beside the structure",
    "cleanup.policy": "an attribute of a topic, which are a map",
    "tls.server.mode": "an option of the file that `tls.config.file` names",
    "tls.server.need.client.auth": "an option of that file",
}
"""Names that no structure has, and why."""


@dataclass
class Use:
    """The names of one function."""

    written: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    codes: set[str] = field(default_factory=set)


def structures() -> dict[str, set[str]]:
    """The names of each structure, with those of the structures inside it."""
    own: dict[str, set[str]] = {}
    inside: dict[str, set[str]] = {}
    for path in [*(RUST / "header").rglob("*.rs"), *(RUST / "body").rglob("*.rs")]:
        text = path.read_text(encoding="utf-8")
        for name, fields in re.findall(r"pub struct (\w+)(?:<'a>)? \{\n(.*?)\n    \}", text, re.S):
            pairs = re.findall(r"pub \w+: ([^=]+?) => \"([^\"]+)\"", fields)
            own[name] = {key for _, key in pairs}
            inside[name] = {word for kind, _ in pairs for word in re.findall(r"\w+", kind)}
    full = {}
    for name in own:
        reached, left = {name}, [name]
        while left:
            for other in (inside[left.pop()] & own.keys()) - reached:
                reached.add(other)
                left.append(other)
        full[name] = {key for one in reached for key in own[one]}
    return full | others()


def others() -> dict[str, set[str]]:
    """Names that stand elsewhere than in a macro's structure."""
    send = (RUST / "header" / "send.rs").read_text(encoding="utf-8")
    (forms,) = re.findall(r"const V1: Keys = \[(.*?)\]", send, re.S)
    processors = ROOT / "crates" / "broker" / "src" / "processor"
    runtime = (processors / "runtime.rs").read_text(encoding="utf-8")
    topic = (processors / "topic.rs").read_text(encoding="utf-8")
    options = {item.apache for kind in (BrokerOptions, NameServerOptions) for item in kind.fields}
    return {
        "SendMessageRequestHeader": set(re.findall(r'"(\w+)"', forms)),
        # The entries of the table that answers 28.
        "KVTable": {"table", *re.findall(r'"(\w+)"', runtime)},
        "further topics": set(re.findall(r'json\.get\("(\w+)"\)', topic)),
        "options": options,
        "status": status_names(),
    }


def status_names() -> set[str]:
    """The names in the states of our servers, which have codes of our own."""
    texts = [path.read_text() for path in (ROOT / "crates/bindings/src/server").glob("*.rs")]
    names = {name for text in texts for name in re.findall(r'set_item\(\s*"(\w+)"', text)}
    parts = [PYTHON / "server" / name for name in ("process.py", "security/revoked.py")]
    for path in [*PYTHON.glob("*/processor/status.py"), *parts]:
        names |= set(re.findall(r'"(\w+)"', path.read_text(encoding="utf-8")))
    return names


def codes() -> dict[str, tuple[set[str], set[str]]]:
    """The structures of each code: those of requests and those of answers."""
    text = (ROOT / "crates/remoting/tests/golden.rs").read_text(encoding="utf-8")
    found: dict[str, tuple[set[str], set[str]]] = {}

    def add(text: str, structure: str, *, is_answer: bool) -> None:
        for code in re.findall(r"[A-Z][A-Z0-9_]+", text):
            found.setdefault(code, (set(), set()))[is_answer].add(structure)

    for requests, header in re.findall(r"\n +([A-Z][A-Z0-9_ |]+) => (\w+Header),", text):
        add(requests, header, is_answer=header.endswith("ResponseHeader"))
    body = r"\((\"response\"|_), ([^)]*)\) => (?:\{\s*)?body_survives::<body::(\w+)>"
    for kind, requests, structure in re.findall(body, text):
        add(requests, structure, is_answer=kind != "_")
    for code, (written, read) in CODES.items():
        for structure in written:
            add(code, structure, is_answer=False)
        for structure in read:
            add(code, structure, is_answer=True)
    return found


def files() -> dict[str, str]:
    """The files of Python's clients that have names of the wire, by their path."""
    named = {function.split(" ")[0] for function in FUNCTIONS}
    found = {}
    for path in sorted(PYTHON.rglob("*.py")):
        name = str(path.relative_to(PYTHON))
        text = path.read_text(encoding="utf-8")
        if not name.startswith(SERVERS) and (name in named or WIRE.search(text)):
            found[name] = text
    return found


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """The functions and methods of a file, each with what is defined in it; then what is left."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{inner.name}", inner
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        else:
            yield "<module>", node


def text_of(node: ast.expr | None) -> str | None:
    """The value of a literal text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
    return None


def keys_in(*nodes: ast.expr | None) -> set[str]:
    """The keys of the dicts in expressions."""
    dicts = [one for node in nodes if node for one in ast.walk(node) if isinstance(one, ast.Dict)]
    return {text for one in dicts for key in one.keys if (text := text_of(key)) is not None}


def use_of(function: ast.stmt, *, is_whole: bool) -> Use:
    """The codes that a function names, and the names that it writes and reads."""
    use = Use()
    camel = set()
    for node in ast.walk(function):
        match node:
            case ast.Attribute(value=ast.Name(id="RequestCode"), attr=code):
                use.codes.add(code)
            case ast.Dict() if is_whole:
                use.written |= keys_in(node)
            case ast.Assign(targets=targets, value=value):
                inner = [one for at in targets for one in ast.walk(at)]
                if REQUESTS & {one.id for one in inner if isinstance(one, ast.Name)}:
                    use.written |= keys_in(value)
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if name in REQUESTS:
                use.written |= keys_in(value)
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in SENDS:
                use.written |= keys_in(*node.args)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"))):
                pass
            case ast.Call(func=ast.Attribute(attr="get"), args=[first, *_]):
                use.read |= {text for text in (text_of(first),) if text is not None}
            case ast.Subscript(slice=key, ctx=context) if (text := text_of(key)) is not None:
                (use.written if isinstance(context, ast.Store) else use.read).add(text)
            case ast.Constant(value=str(text)) if CAMEL.fullmatch(text):
                camel.add(text)
            case _:
                pass
    use.read |= camel - use.written
    return use


def wrong_names(
    uses: dict[str, Use], known: dict[str, set[str]], of_codes: dict[str, tuple[set[str], set[str]]]
) -> list[str]:
    """The names that no structure of the function's codes has."""
    wrong = []
    for function, use in uses.items():
        written = set(OUTSIDE) | OWN.get(function, set())
        read = set(written)
        given = FUNCTIONS.get(function, ())
        for one in (*use.codes, *given):
            requests, answers = of_codes.get(one, (set(), set()))
            written |= {name for each in requests for name in known[each]}
            read |= {name for each in answers for name in known[each]}
        written |= {name for one in given if one[0] == ">" for name in known[one[1:]]}
        read |= {name for one in given if one[0] == "<" for name in known[one[1:]]}
        wrong += [f"{function} writes {name}" for name in sorted(use.written - written)]
        wrong += [f"{function} reads {name}" for name in sorted(use.read - read)]
    return wrong


def uses() -> dict[str, Use]:
    """The uses of functions that have names of the wire."""
    found: dict[str, Use] = {}
    for file, text in files().items():
        is_whole = file.startswith(WHOLE)
        for name, node in functions(ast.parse(text)):
            function, use = f"{file} {name}", use_of(node, is_whole=is_whole)
            names = use.written | use.read
            has_camel = any(CAMEL.fullmatch(one) for one in names)
            if names and (is_whole or has_camel or use.codes or function in FUNCTIONS):
                before = found.setdefault(function, Use())
                before.written |= use.written
                before.read |= use.read
                before.codes |= use.codes
    return found


USES = uses()


def test_clients_write_and_read_only_names_of_the_structures() -> None:
    assert sum(len(use.written) + len(use.read) for use in USES.values()) > 250
    wrong = wrong_names(USES, structures(), codes())
    assert not wrong, f"misspelt, or its code or function lacks an entry in this file: {wrong}"


@pytest.mark.parametrize("listed", [FUNCTIONS, OWN], ids=["functions", "own"])
def test_each_function_of_the_lists_has_names(listed: dict[str, object]) -> None:
    assert not set(listed) - set(USES)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('fields = {"consumerGrup": group}', "writes consumerGrup"),
        ('admin._request(address, code, {"topicc": topic})', "writes topicc"),
        ('rows = body.get("ofsetTable")', "reads ofsetTable"),
        ('rows = body["offsetTabel"]', "reads offsetTabel"),
        # Of another code, and of a request's header instead of an answer's body.
        ('rows = body.get("topicList")', "reads topicList"),
        ('rows = body.get("consumerGroup")', "reads consumerGroup"),
        ('rows = number(body, "brokerOfset")', "reads brokerOfset"),
        ('own = {"anything": body["consumeTps"]}', None),
    ],
)
def test_the_comparison_sees_a_wrong_name(line: str, wrong: str | None) -> None:
    text = f"def lag():\n    code = RequestCode.GET_CONSUME_STATS\n    {line}\n"
    ((name, node),) = functions(ast.parse(text))
    found = wrong_names({name: use_of(node, is_whole=False)}, structures(), codes())
    assert found == ([] if wrong is None else [f"lag {wrong}"])
