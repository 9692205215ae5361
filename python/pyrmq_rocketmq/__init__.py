"""The guard of the import name: says what is wrong when another ``pyrmq`` shadows ours.

The package index has a RabbitMQ library called PyRMQ that imports as ``pyrmq`` too. Both cannot
live in one environment. Where its ``pyrmq`` is found first, none of our modules inside ``pyrmq``
gets a say; this module lies outside, is what the ``pyrmq`` command starts from, and tells.

Example:
    >>> import pyrmq_rocketmq
    >>> pyrmq_rocketmq.check()
"""

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["check", "main", "native_module_missing"]

_FIX = (
    "Fix: `pip uninstall pyrmq` and `pip install --force-reinstall pyrmq-rocketmq`, "
    "or give each its own environment."
)


def _is_foreign(folder: str) -> bool:
    # publisher.py is RabbitMQ's word and file; remoting.py is RocketMQ's and ours.
    return _has(folder, "publisher.py") or not _has(folder, "remoting.py")


def _has(folder: str, name: str) -> bool:
    # Not pathlib: its import would take longer than the rest of a command's start.
    return os.path.isfile(os.path.join(folder, name))  # noqa: PTH113, PTH118


def _shadowed(folder: str) -> ImportError:
    return ImportError(
        f"`import pyrmq` finds another package at {folder}: the RabbitMQ library PyRMQ has the "
        f"same import name as pyrmq-rocketmq, and both cannot live in one environment. {_FIX}",
        name="pyrmq",
        path=folder,
    )


def native_module_missing(path: "Iterable[str]", cause: ImportError) -> ImportError:
    """Explain why ``pyrmq._core`` cannot be imported.

    Args:
        path: Folders of the package ``pyrmq`` as it was found.
        cause: What Python said.

    Returns:
        The error to raise: another package in the way, a source tree that was not built, or a
        wheel that does not fit this interpreter.
    """
    folders = list(path)
    for folder in folders:
        if _is_foreign(folder):
            return _shadowed(folder)
    places = ", ".join(folders)
    names = [name for folder in folders for name in os.listdir(folder)]  # noqa: PTH208
    if any(name.startswith("_core") and name.endswith((".so", ".pyd")) for name in names):
        return ImportError(
            f"pyrmq's native module in {places} cannot be loaded: {cause}. It was built for "
            "another platform or Python. Fix: `pip install --force-reinstall pyrmq-rocketmq`.",
            name="pyrmq._core",
        )
    return ImportError(
        f"pyrmq's native module `_core` is missing in {places}. In a source tree: `make dev` "
        "builds it. Else: the installation is incomplete, or partly overwritten by the RabbitMQ "
        f"library PyRMQ. {_FIX}",
        name="pyrmq._core",
    )


def check() -> None:
    """Make sure that ``import pyrmq`` means ours, without importing it.

    Raises:
        ImportError: Another package of that name is found first, or none at all; the text says
            how to mend it.

    Example:
        >>> check()
    """
    spec = sys.modules["pyrmq"].__spec__ if "pyrmq" in sys.modules else find_spec("pyrmq")
    if spec is None:
        raise ImportError(f"package `pyrmq` is missing, so the installation is. {_FIX}")
    for folder in spec.submodule_search_locations or [str(spec.origin)]:
        if _is_foreign(folder):
            raise _shadowed(folder)


def main() -> int:
    """Run the ``pyrmq`` command line after :func:`check`.

    Returns:
        The exit status.
    """
    try:
        check()
    except ImportError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    from pyrmq.cli import main as run

    return run()
