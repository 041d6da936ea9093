"""The code that runs in Spark's tasks: it fetches planned ranges and decodes them, and writes rows.

A read begins in `read/fetcher.py`. `RangeReader`, `Pipeline` and `Recovery` serve every Kafka. A `ReadFormat`
(`read/read_format.py`) has the differences between Kafka and Kafka 0.7: `read/kafka.py` and `read/kafka07.py` implement
it. A write begins in `write/sink_writer.py`.
"""
