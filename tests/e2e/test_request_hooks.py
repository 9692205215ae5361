"""Request hooks of clients in Python and of servers' Python rows."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyrmq import Admin, Credentials, NameServer
from pyrmq.codes import RequestCode, ResponseCode
from pyrmq.errors import BrokerError, ConfigError, ConnectionLost
from pyrmq.remoting import Client, HookedRequest, RequestHook
from pyrmq.server.processors import Refused, Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyrmq import _core

ECHO = 9001


class Watch(RequestHook):
    """Records what it sees, adds a field, and refuses a code."""

    def __init__(self, name: str = "watch", log: list[str] | None = None) -> None:
        self.name = name
        self.log: list[str] = [] if log is None else log
        self.seen: list[tuple[HookedRequest, BaseException | None, Any]] = []
        self.refused = 9002

    def before_request(self, request: HookedRequest) -> None:
        """Record or refuse."""
        if request.code == self.refused:
            raise PermissionError(f"{self.name} refuses")
        request.fields[self.name] = threading.current_thread().name
        request.notes[self] = "before"
        self.log.append(f"before {self.name}")

    def after_response(
        self, request: HookedRequest, error: BaseException | None, response: object
    ) -> None:
        """Record."""
        assert request.notes[self] == "before"
        self.log.append(f"after {self.name}")
        self.seen.append((request, error, response))


class Ends(RequestHook):
    """Raises what is no `Exception` in the method that a field names."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.kind = kind

    def before_request(self, request: HookedRequest) -> None:
        """Raise."""
        if request.fields.get("end") == "before":
            raise self.kind("a hook that ends")

    def after_response(self, request: HookedRequest, *_: object) -> None:
        """Raise."""
        if request.fields.get("end") == "after":
            raise self.kind("a hook that ends")


@contextmanager
def server(*hooks: RequestHook, **options: Any) -> Iterator[NameServer]:  # noqa: ANN401 - of any kind
    """Run a name server that echoes fields."""
    made = NameServer(bind_address="127.0.0.1", listen_port=0, **options)

    @made.processors.register(ECHO)
    def echo(request: _core.Request) -> Response:
        if request.get("fail") == "refuse":
            raise Refused(22, "not today")
        if request.get("end") == "handler":
            raise SystemExit("a handler that exits")
        return Response(fields=dict(request.fields), body=request.body)

    for hook in hooks:
        made.processors.add_hook(hook)
    with made:
        yield made


def test_hooks_of_a_client_run_around_each_request_in_the_thread_that_asks() -> None:
    log: list[str] = []
    first, second = Watch("first", log), Watch("second", log)
    with server() as names, Client(hooks=[first, second]) as client:
        answer = client.request(names.address, ECHO, {"a": 1}, b"body")
        here = threading.current_thread().name
        assert answer.fields == {"a": "1", "first": here, "second": here}
        assert log == ["before first", "before second", "after second", "after first"]
        request, error, response = first.seen[0]
        assert (request.address, request.code, request.body) == (names.address, ECHO, b"body")
        assert error is None
        assert response is answer
        # An answer with an error's code is an answer.
        with pytest.raises(BrokerError, match="not today"):
            client.ask(names.address, ECHO, {"fail": "refuse"})
        assert first.seen[1][2].code == 22


def test_a_hook_that_raises_before_sends_nothing_and_after_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(RequestHook):
        def after_response(self, *_: object) -> None:
            raise ValueError("a broken hook")

    log: list[str] = []
    outer, refusing = Watch("outer", log), Watch("refusing", log)
    outer.refused = 0
    served = Watch("served")
    served.refused = 0
    with server(served) as names, Client(hooks=[Broken(), outer, refusing]) as client:
        with pytest.raises(PermissionError, match="refusing refuses"):
            client.request(names.address, 9002)
        assert log == ["before outer", "after outer"], "only hooks that let it pass hear of the end"
        assert isinstance(outer.seen[0][1], PermissionError)
        assert client.request(names.address, ECHO).code == ResponseCode.SUCCESS
        assert [request.code for request, _, _ in served.seen] == [ECHO]
    assert "a broken hook" in caplog.text
    with Client(hooks=[outer]) as client, pytest.raises(ConnectionLost):
        client.request("127.0.0.1:1", ECHO)
    assert isinstance(outer.seen[-1][1], ConnectionLost)
    with pytest.raises(ConfigError, match="RequestHook"):
        Client(hooks=[object()])  # type: ignore[list-item]


def test_what_a_hook_adds_is_signed(tmp_path: Any) -> None:  # noqa: ANN401 - pytest's path
    users = tmp_path / "users.json"
    users.write_text('{"users":[{"username":"root","password":"pw-of-root","userType":"Super"}]}')
    root = tmp_path / "root.json"
    root.write_text('{"accessKey": "root", "secretKey": "pw-of-root"}')
    for file in (users, root):
        file.chmod(0o600)
    options = {
        "authentication_enabled": True,
        "auth_config_path": str(users),
        "inner_client_credentials_path": str(root),
    }
    credentials, hook, served = Credentials("root", "pw-of-root"), Watch("tenant"), Watch("served")
    with server(served, **options) as names:
        with Client(hooks=[hook], credentials=credentials) as client:
            answer = client.request(names.address, ECHO)
            assert answer.fields["tenant"] == threading.current_thread().name
        with Client() as stranger:
            assert stranger.request(names.address, ECHO).code == ResponseCode.NO_PERMISSION
    assert len(served.seen) == 1, "hooks see what passed the check of users"


def test_hooks_of_admin_see_its_requests() -> None:
    hook = Watch()
    with server() as names, Admin(name_server=names.address, hooks=[hook]) as admin:
        admin.topics()
    codes = [request.code for request, _, _ in hook.seen]
    assert codes == [RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER]


def test_hooks_of_a_server_run_around_its_python_rows_and_refuse() -> None:
    class Forbid(RequestHook):
        def before_request(self, request: HookedRequest) -> None:
            if request.fields.get("who") == "stranger":
                raise Refused(ResponseCode.NO_PERMISSION, "strangers are not served")
            if request.fields.get("who") == "bug":
                raise ValueError("a bug in a hook")

    watch = Watch()
    with server(watch, Forbid()) as names, Client() as client:
        assert client.request(names.address, ECHO, {"a": "b"}).fields == {"a": "b"}
        refused = client.request(names.address, ECHO, {"who": "stranger"})
        assert (refused.code, refused.remark) == (
            ResponseCode.NO_PERMISSION,
            "strangers are not served",
        )
        broken = client.request(names.address, ECHO, {"who": "bug"})
        assert broken.code == ResponseCode.SYSTEM_ERROR
        assert "a bug in a hook" in (broken.remark or "")
        # A native row takes no Python hook.
        client.request(names.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "none"})
        with pytest.raises(ConfigError, match="before start"):
            names.processors.add_hook(Watch())
    errors = [type(error) for _, error, _ in watch.seen]
    assert errors == [type(None), Refused, ValueError]
    assert watch.seen[0][0].address.startswith("127.0.0.1:")


@pytest.mark.parametrize("kind", [SystemExit, asyncio.CancelledError])
def test_no_worker_ends_by_what_a_hook_or_a_handler_raises(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    with server(Ends(kind)) as names, Client() as client:
        prefix = f"{names.thread_name}-worker-"
        workers = [one for one in threading.enumerate() if one.name.startswith(prefix)]
        assert workers
        for where in ("before", "after", "handler"):
            for _ in range(len(workers) + 1):
                answer = client.request(names.address, ECHO, {"end": where})
                is_answered = answer.code == ResponseCode.SUCCESS
                assert is_answered == (where == "after"), answer.remark
                assert is_answered or "that e" in (answer.remark or "")
        assert client.request(names.address, ECHO).code == ResponseCode.SUCCESS
        assert all(worker.is_alive() for worker in workers)
    assert "a hook that ends" in caplog.text


def test_the_hooks_of_a_client_hear_of_an_answer_whatever_one_of_them_raises() -> None:
    outer = Watch("outer")
    with server() as names:
        with Client(hooks=[outer, Ends(SystemExit)]) as client:
            with pytest.raises(SystemExit, match="a hook that ends"):
                client.request(names.address, ECHO, {"end": "after"})
            assert outer.log == ["before outer", "after outer"]
        with Client(hooks=[outer, Ends(asyncio.CancelledError)]) as client:
            answer = client.request(names.address, ECHO, {"end": "after"})
            assert answer.code == ResponseCode.SUCCESS
            assert outer.seen[-1][2] is answer


def test_a_slow_hook_of_a_server_delays_no_native_row_and_no_answer() -> None:
    reached, leave = threading.Event(), threading.Event()

    class Slow(RequestHook):
        def after_response(self, *_: object) -> None:
            reached.set()
            leave.wait(20)

    with server(Slow()) as names, Client() as client:
        try:
            # The answer is sent before the slow hook that follows it.
            assert client.request(names.address, ECHO, timeout=15).code == ResponseCode.SUCCESS
            assert reached.wait(15)
            fields = {"topic": "none"}
            answer = client.request(
                names.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields, timeout=15
            )
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        finally:
            leave.set()


def test_a_slow_hook_of_a_client_takes_nothing_of_the_answers_time() -> None:
    delay = threading.Event()

    class Slow(RequestHook):
        def before_request(self, request: HookedRequest) -> None:
            delay.wait(1.2)

    with server() as names, Client(hooks=[Slow()]) as client:
        Client().request(names.address, ECHO)
        assert client.request(names.address, ECHO, timeout=1.0).code == ResponseCode.SUCCESS


PROGRAM = """
    import os, sys
    from pyrmq import ForkError
    from pyrmq.remoting import Client, RequestHook

    class Count(RequestHook):
        before = after = 0
        errors = []
        def before_request(self, request):
            self.before += 1
        def after_response(self, request, error, response):
            self.after += 1
            self.errors.append(type(error).__name__)

    hook, address = Count(), sys.argv[1]
    client = Client(hooks=[hook])
    client.request(address, 9001)
    child = os.fork()
    if child == 0:
        try:
            client.request(address, 9001)
        except ForkError:
            pass
        with Client(hooks=[hook]) as own:
            own.request(address, 9001)
        assert (hook.before, hook.after) == (3, 3), (hook.before, hook.after)
        assert hook.errors == ["NoneType", "ForkError", "NoneType"], hook.errors
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    client.request(address, 9001)
    assert (hook.before, hook.after) == (2, 2)
    print("ok")
"""


def test_hooks_work_in_a_forked_child() -> None:
    with server() as names:
        program = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(PROGRAM), names.address]
        done = subprocess.run(program, capture_output=True, text=True, timeout=25, check=False)
    assert done.stdout == "ok\n", done.stderr
