"""Finds what is wrong with a cluster, as seen from this program.

The command is `pyrmq doctor`. Each problem has a name, its cause and its fix; :data:`CHECKS` lists
all checks. It works for pyrmq and Apache RocketMQ; checks that need pyrmq's servers are left out
for Apache's.

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
