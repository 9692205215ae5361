"""A page that shows a cluster: brokers, topics, groups, messages, dead letters, options.

It needs the extra ``dashboard``, and works for pyrmq's servers and Apache's. ``pyrmq dashboard``
starts it; ``app.py`` is an ASGI application, ``cluster.py`` its requests to the cluster.
"""

from __future__ import annotations

from importlib.util import find_spec

from pyrmq.errors import ConfigError

__all__ = ["check_extra"]


def check_extra() -> None:
    """Check for missing libraries, before anything starts.

    Raises:
        ConfigError: The libraries of the extra are not installed.

    Example:
        >>> check_extra()  # doctest: +SKIP
    """
    missing = [name for name in ("starlette", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the dashboard needs {' and '.join(missing)}. "
            "Fix: pip install 'pyrmq-rocketmq[dashboard]'"
        )
