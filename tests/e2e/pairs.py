"""A name server and two brokers of this process, all with options of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyrmq import Broker, NameServer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class Pair:
    """A name server and two brokers, registered when this returns.

    Args:
        store: Directory of the brokers' stores.
        each: Options of the name server and of either broker.
        options: Options that all three have.
    """

    def __init__(
        self,
        store: Path,
        each: Sequence[Mapping[str, Any]] = ({}, {}, {}),
        /,
        **options: Any,  # noqa: ANN401 - of both servers
    ) -> None:
        both: dict[str, Any] = {"listen_port": 0, "bind_address": "127.0.0.1", **options}
        self.name_server = NameServer(**both, **each[0]).start()
        self.brokers = [
            Broker(
                broker_name=f"broker{at}",
                broker_ip1="127.0.0.1",
                namesrv_addr=self.name_server.address,
                store_path_root_dir=str(store / f"store{at}"),
                mapped_file_size_commit_log=64 << 20,
                **both,
                **each[at],
            )
            for at in (1, 2)
        ]
        for broker in self.brokers:
            broker.start().await_registration()
        self.address = self.name_server.address

    def stop(self) -> None:
        """Stop all of them at once."""
        for broker in self.brokers:
            broker.stop(0)
        self.name_server.stop(0)
