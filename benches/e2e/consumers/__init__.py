"""Rows of consumer groups: idle, with a backlog, killed, joining and leaving, many, held.

Each row runs a server of ours and consumers, most of them in processes of their own. It has a
target in place of a rival: the original is not measured here.
"""

TOPIC = "bench-members"
