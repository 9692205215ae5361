"""`python -m pyrmq`: the same as `pyrmq`."""

import sys

# Not pyrmq.cli.main itself: the guard reports when another package of the same name shadows ours.
from pyrmq_rocketmq import main

sys.exit(main())
