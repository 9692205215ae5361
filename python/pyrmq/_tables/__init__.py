"""Topics and log files as tables: what `pyrmq.arrow` and `pyrmq.spark` share. Knows no Spark."""
