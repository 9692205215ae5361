"""The key-value configuration: namespaces of texts, kept in `kvConfig.json` in Apache's form.

Invariant: a change is on disk before it is answered. The namespace `ORDER_TOPIC_CONFIG` also goes
to the core, which puts it into routes and registration answers (Apache `KVConfigManager`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pyrmq.server.files import read_or_backup, write_synced
from pyrmq.server.requests import as_json

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class KvConfig:
    """Namespaces of texts, persistent.

    Example:
        >>> kv = KvConfig("kvConfig.json")  # doctest: +SKIP
        >>> kv.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4")  # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._on_order: Callable[[dict[str, str] | None], None] | None = None
        # Guards the table and the file: each change is written before the next one begins.
        self._lock = threading.Lock()
        self._table: Table = read_or_backup(path, _parse) or {}

    def watch_order(self, on_order: Callable[[dict[str, str] | None], None]) -> None:
        """Call a function with the namespace `ORDER_TOPIC_CONFIG`, now and after each change.

        The argument is None as long as the namespace never had a value.
        """
        with self._lock:
            self._on_order = on_order
            on_order(self._table.get(ORDER_TOPIC_CONFIG))

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value; it is on disk when this returns.

        Raises:
            OSError: the file cannot be written; nothing was changed.
        """
        with self._lock:
            table = self._copy()
            table.setdefault(namespace, {})[key] = value
            self._replace(table, namespace)

    def delete(self, namespace: str, key: str) -> None:
        """Delete a value if it is there; that is on disk when this returns.

        Raises:
            OSError: the file cannot be written; nothing was changed.
        """
        with self._lock:
            table = self._copy()
            table.get(namespace, {}).pop(key, None)
            self._replace(table, namespace)

    def get(self, namespace: str, key: str) -> str | None:
        """Return one value."""
        with self._lock:
            return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace; None if it never had one."""
        with self._lock:
            values = self._table.get(namespace)
            return None if values is None else dict(values)

    def _copy(self) -> Table:
        return {namespace: dict(values) for namespace, values in self._table.items()}

    def _replace(self, table: Table, changed: str) -> None:
        write_synced(self._path, as_json({"configTable": table}))
        self._table = table
        if changed == ORDER_TOPIC_CONFIG and self._on_order is not None:
            self._on_order(table.get(changed))


def _parse(data: bytes) -> Table:
    import json

    tree = json.loads(data)
    table = tree.get("configTable") if isinstance(tree, dict) else None
    if not isinstance(table, dict):
        raise ValueError("it has no object `configTable`")  # noqa: TRY004 - the content is wrong, not a type
    for values in table.values():
        if not isinstance(values, dict) or not all(isinstance(v, str) for v in values.values()):
            raise ValueError("`configTable` is not a table of tables of texts")
    return table
