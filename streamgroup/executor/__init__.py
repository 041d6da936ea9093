"""The code that runs in Spark's tasks: fetch planned ranges and decode them.

`fetcher.py` is the entry. One `RangeReader`, one `Pipeline` and one `Recovery` serve every Kafka. A `ReadFormat`
(`read_format.py`) has the differences between Kafka and Kafka 0.7, carried out in `kafka.py` and in `kafka07.py`.
"""
