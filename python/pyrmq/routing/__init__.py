"""Decisions of clients and brokers, usable by themselves: without connection or clock.

Which queue a message goes to (:class:`QueueSelector`, :class:`LatencyFaultTolerance`,
:class:`MachineRoom`), which messages pass a SQL92 filter (:class:`Filter`), and which consumer of a
group reads which queue (:mod:`pyrmq.routing.allocate`).

Example:
    >>> Filter("price BETWEEN 10 AND 20").matches({"price": "12"})
    True
"""

from pyrmq._core import java_hash as java_hash
from pyrmq._core import queue_by_hash as queue_by_hash
from pyrmq.routing import allocate as allocate
from pyrmq.routing.filter import Filter as Filter
from pyrmq.routing.selection import Fault as Fault
from pyrmq.routing.selection import LatencyFaultTolerance as LatencyFaultTolerance
from pyrmq.routing.selection import MachineRoom as MachineRoom
from pyrmq.routing.selection import QueueSelector as QueueSelector

__all__ = [
    "Fault",
    "Filter",
    "LatencyFaultTolerance",
    "MachineRoom",
    "QueueSelector",
    "allocate",
    "java_hash",
    "queue_by_hash",
]
