"""The code that runs in Spark's tasks: fetch planned ranges and decode them.

`executor/read/fetcher.py` is the entry. One `RangeReader`, one `Pipeline` and one `Recovery` serve every Kafka. A `ReadFormat`
(`executor/read/read_format.py`) has the differences between Kafka and Kafka 0.7, carried out in `executor/read/kafka.py` and in `executor/read/kafka07.py`.
"""
