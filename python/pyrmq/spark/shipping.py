"""Ships readers and writers to executors so that missing packages there give a clear error.

Spark pickles them by the names of their classes. On an executor without pyrmq that ends in a bare
ModuleNotFoundError somewhere in Spark's worker. So Spark gets a function, pickled with its code,
that looks for pyrmq first and then unpickles the object from bytes.
"""

from __future__ import annotations

from typing import Any

import pyrmq

__all__ = ["Shipped"]


def _open_on_executor(version: str, content: bytes) -> Any:  # noqa: ANN401 - what was shipped
    # This code runs where pyrmq may be missing, so it uses only the standard library.
    import pickle
    import socket
    import sys

    where = f"executor {socket.gethostname()} ({sys.executable})"
    fix = (
        f"install pyrmq-rocketmq[spark]=={version} there, or ship an environment that has it"
        " (spark-submit --archives)"
    )
    try:
        import pyarrow  # noqa: F401

        import pyrmq
        import pyrmq._core
    except ImportError as error:
        raise ImportError(f"{where}: format rocketmq cannot be used: {error}. Fix: {fix}") from None
    if pyrmq.__version__ != version:
        raise ImportError(
            f"{where}: has pyrmq {pyrmq.__version__}, the driver has {version}. Fix: {fix}"
        )
    cls, state = pickle.loads(content)  # noqa: S301 - Spark unpickles this object the same way
    made = cls.__new__(cls)
    made.__dict__.update(state)
    return made


# Functions of the main module are pickled with their code: the executor may not have this file.
_open_on_executor.__module__ = "__main__"


class Shipped:
    """Pickles itself as described above; its state is its dictionary, or what `shipped` returns."""

    def shipped(self) -> dict[str, Any]:
        """Return the attributes that executors need."""
        return self.__dict__

    def __reduce__(self) -> tuple[Any, tuple[str, bytes]]:
        """Pickle the opening function by value, and the object as bytes."""
        from pyspark import cloudpickle

        content = cloudpickle.dumps((type(self), self.shipped()))  # type: ignore[no-untyped-call]
        return _open_on_executor, (pyrmq.__version__, content)
