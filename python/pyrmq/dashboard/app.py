"""The application: checks the requests of browsers, and answers as JSON."""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import FileResponse, JSONResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from pyrmq import __version__
from pyrmq._client import log
from pyrmq._client.security.secrets import HIDDEN, is_secret
from pyrmq.dashboard.changes import Changes
from pyrmq.dashboard.guard import Guard
from pyrmq.errors import (
    ConfigError,
    ConnectionLost,
    MessageError,
    NameServerUnreachable,
    RequestTimeout,
    RmqError,
    RouteError,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from pyrmq.dashboard.cluster import Cluster
    from pyrmq.dashboard.guard import Permissions

_STATIC = Path(__file__).parent / "static"
_MAX_MESSAGES = 200
_MAX_RESENT = 500
_LOGGED_CHARACTERS = 1000
_MAX_REQUESTS = 16
"""Concurrent requests to the cluster; the page's files have separate threads."""


def application(cluster: Cluster, permissions: Permissions) -> Starlette:
    """The ASGI application for a cluster, which it starts and closes.

    Args:
        cluster: The cluster's data.
        permissions: What a request may do.

    Example:
        >>> application(Cluster("127.0.0.1:9876", 3.0), permissions)  # doctest: +SKIP
    """
    changes = Changes(cluster)

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        app.state.request_limiter = CapacityLimiter(_MAX_REQUESTS)
        cluster.start()
        try:
            yield
        finally:
            await run_sync(cluster.close)

    reads, writes = _reads(cluster, changes, permissions), _writes(changes)
    routes = [
        Route("/", _page, methods=["GET"]),
        *(Route(f"/api/{name}", _reading(read), methods=["GET"]) for name, read in reads.items()),
        *(Route(f"/api/{name}", _writing(do), methods=["POST"]) for name, do in writes.items()),
        Mount("/static", StaticFiles(directory=_STATIC)),
    ]
    return Starlette(
        routes=routes, middleware=[Middleware(Guard, permissions=permissions)], lifespan=life
    )


def _reads(
    cluster: Cluster, changes: Changes, permissions: Permissions
) -> dict[str, Callable[[_Query], Any]]:
    return {
        "overview": lambda _: {
            **cluster.overview(),
            "version": __version__,
            "write": permissions.may_write,
        },
        "topics": lambda query: cluster.topics(
            query.text("search"), query.number("page", 0), system=query.text("system") == "1"
        ),
        "topic-names": lambda _: cluster.topic_names(),
        "topic": lambda query: cluster.topic(query.need("topic")),
        "newest": lambda query: cluster.reader.newest(
            query.need("topic"), query.number("count", 20, most=_MAX_MESSAGES)
        ),
        "groups": lambda query: cluster.groups(query.text("search"), query.number("page", 0)),
        "group": lambda query: cluster.group(query.need("group")),
        "messages": lambda query: cluster.reader.by_key(
            query.need("topic"), query.need("key"), query.number("count", 64, most=_MAX_MESSAGES)
        ),
        "message": lambda query: cluster.message(query.need("id"), query.text("topic")),
        "dead-letter-groups": lambda _: cluster.dead_letter_groups(),
        "options": lambda query: changes.options(query.text("broker")),
    }


def _writes(changes: Changes) -> dict[str, Callable[[_Body], Any]]:
    return {
        "resend": lambda body: changes.resend(body.text("group"), body.texts("ids", _MAX_RESENT)),
        "set-option": lambda body: changes.set_option(
            body.text("broker"), body.text("key"), body.text("value", may_be_empty=True)
        ),
        "seek": lambda body: changes.seek(body.text("group"), body.text("topic"), body.text("to")),
        "create-topic": lambda body: changes.create_topic(
            body.text("topic"), body.number("queues", 1, 65_536)
        ),
    }


class _Query:
    """The query of a request, checked."""

    def __init__(self, request: Request) -> None:
        self._given = request.query_params

    def text(self, name: str) -> str:
        return str(self._given.get(name, ""))

    def need(self, name: str) -> str:
        text = self.text(name)
        if not text:
            raise ConfigError(f"`{name}` is missing")
        return text

    def number(self, name: str, default: int, *, most: int = 1_000_000) -> int:
        text = self.text(name) or str(default)
        is_short = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not is_short or int(text) > most:
            raise ConfigError(f"`{name}` is `{text[:20]}`: it must be a number from 0 to {most}")
        return int(text)


class _Body:
    """The JSON body of a request, checked."""

    def __init__(self, tree: object) -> None:
        if not isinstance(tree, dict):
            raise ConfigError("the body must be a JSON object")
        self._tree: dict[str, Any] = tree

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        value = self._tree.get(name)
        if not _is_text(value) or not (value or may_be_empty):
            raise ConfigError(f"`{name}` must be a string")
        return str(value)

    def texts(self, name: str, most: int) -> list[str]:
        value = self._tree.get(name)
        if not isinstance(value, list) or not all(_is_text(each) for each in value):
            raise ConfigError(f"`{name}` must be a list of strings")
        if not 0 < len(value) <= most:
            raise ConfigError(f"`{name}` has {len(value)} strings: it must have 1 to {most}")
        return value

    def number(self, name: str, least: int, most: int) -> int:
        value = self._tree.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ConfigError(f"`{name}` must be a number from {least} to {most}")
        return value


def _is_text(value: object) -> bool:
    """Whether a JSON value is a string that UTF-8 can encode: half of a surrogate pair is not."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _logged(tree: object) -> str:
    """The body of a change for the log: short, without the value of a secret option.

    Example:
        >>> _logged({"key": "tls.server.keyPassword", "value": "x"})
        "{'key': 'tls.server.keyPassword', 'value': '(hidden)'}"
    """
    if isinstance(tree, dict) and is_secret(str(tree.get("key", ""))):
        tree = tree | {"value": HIDDEN}
    return ascii(tree)[:_LOGGED_CHARACTERS]


async def _page(_: Request) -> Response:
    return FileResponse(_STATIC / "index.html")


def _reading(read: Callable[[_Query], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        return await _worked(request, lambda: read(_Query(request)))

    return answer


def _writing(do: Callable[[_Body], Any]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            tree = await request.json()
        except (ValueError, RecursionError):
            return JSONResponse({"error": "the body is not JSON"}, status_code=400)
        response = await _worked(request, lambda: do(_Body(tree)))
        path, status = request.url.path, response.status_code
        log.get("pyrmq.dashboard").info("%s: %s (%d)", path, _logged(tree), status)
        return response

    return answer


async def _worked(request: Request, work: Callable[[], Any]) -> Response:
    return await run_sync(_answered, work, limiter=request.app.state.request_limiter)


def _answered(work: Callable[[], Any]) -> Response:
    try:
        return JSONResponse(work())
    except RmqError as error:
        return JSONResponse({"error": str(error)}, status_code=_status(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        log.get("pyrmq.dashboard").exception("an answer of the cluster cannot be shown")
        text = "an answer of the cluster cannot be shown; the dashboard's log has the cause"
        return JSONResponse({"error": text}, status_code=502)


def _status(error: RmqError) -> int:
    if isinstance(error, ConfigError | MessageError):
        return 400
    if isinstance(error, NameServerUnreachable | ConnectionLost | RequestTimeout | RouteError):
        return 503
    return 502
