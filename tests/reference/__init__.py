"""A second, independent codec of RocketMQ's wire and disk forms, in plain Python.

It shares no code with ``pyrmq`` and is written from the description of the formats. It is slow and
plain: the oracle of the property tests. Modules: ``frame`` (frame and both header forms),
``record`` (message record, batch), ``properties``, ``ids``, ``java`` (Java's string hash).
"""
