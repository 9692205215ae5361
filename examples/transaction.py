"""Send a message if, and only if, a row is in the database.

    python examples/transaction.py                  # starts its own servers
    python examples/transaction.py 127.0.0.1:9876   # uses yours

The broker keeps the message as a half message that no consumer reads until the local transaction
has ended. If the producer does not report the end, the broker checks later, and the database has
the answer.
"""

from __future__ import annotations

import sqlite3
import sys
import threading
from contextlib import ExitStack

from pyrmq import PullConsumer, ReceivedMessage, SendResult, TransactionProducer
from pyrmq import TransactionState as State
from pyrmq.testing import cluster

database = sqlite3.connect(":memory:", check_same_thread=False)
database.execute("CREATE TABLE transfers (id TEXT PRIMARY KEY, euros INTEGER)")
lock = threading.Lock()


def check(message: ReceivedMessage) -> State:
    """Runs in a thread of the producer, also for transactions of a process that died."""
    with lock:
        row = database.execute("SELECT 1 FROM transfers WHERE id = ?", (message.message_id,))
        return State.COMMIT if row.fetchone() else State.ROLLBACK


def main(name_server: str) -> None:
    with TransactionProducer(name_server=name_server, group="bank", check=check) as producer:
        for euros, said in ((10, State.COMMIT), (20, State.ROLLBACK), (30, State.UNKNOWN)):

            def local(half: SendResult, euros: int = euros, said: State = said) -> State:
                if said is not State.ROLLBACK:
                    row = (half.message_id, euros)
                    with lock, database:
                        database.execute("INSERT INTO transfers VALUES (?, ?)", row)
                # UNKNOWN: as if this process died here. The row exists, and the broker must check.
                return said

            result = producer.send_in_transaction("transfers", f"{euros} euros", local)
            print(f"{euros} euros: {result.state.name}, confirmed: {result.confirmed}")
        with PullConsumer(name_server=name_server, group="ledger") as consumer:
            consumer.subscribe("transfers")
            for number, message in enumerate(consumer, start=1):
                print(f"booked: {message.body.decode()}")
                if number == 2:
                    break


if __name__ == "__main__":
    with ExitStack() as stack:
        own = cluster(transaction_time_out=100, transaction_check_interval=100)
        main(sys.argv[1] if sys.argv[1:] else stack.enter_context(own).name_server)
