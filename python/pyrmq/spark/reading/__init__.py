"""The readers that Spark drives: batches, streams, directories of log files."""
