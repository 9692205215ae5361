"""A broker whose store is on a disk with injected faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyrmq import _core
from pyrmq.broker.server import Broker

if TYPE_CHECKING:
    from pyrmq.config import BrokerOptions


class FaultyBroker(Broker):
    """A broker on a disk of `_core`; the disk outlives its restarts."""

    def __init__(self, disk: _core.Disk, options: BrokerOptions) -> None:
        super().__init__(options)
        self._disk = disk

    def _start_core(self) -> _core.Broker:
        return _core.Broker.start_on(self._disk, self._pairs(self._options), self.processors.codes)
