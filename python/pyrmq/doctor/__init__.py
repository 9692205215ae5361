"""Finds what is wrong with a cluster, from where this program stands.

The command is `pyrmq doctor`. Each problem has a name, its cause and its fix; :data:`CHECKS` lists
all that are looked for. It works for pyrmq and Apache RocketMQ; what only pyrmq's servers can tell
is left out for the others.

Example:
    >>> from pyrmq.testing import cluster
    >>> with cluster() as running:
    ...     examine(running.name_server)
    []
"""

from pyrmq.doctor.checks import CHECKS as CHECKS
from pyrmq.doctor.checks import Check as Check
from pyrmq.doctor.checks import Finding as Finding
from pyrmq.doctor.checks import examine as examine

__all__ = ["CHECKS", "Check", "Finding", "examine"]
