"""The code that runs in Spark's tasks: it fetches and decodes planned ranges of offsets, and it writes rows.

A read begins in `read/fetcher.py`. `RangeReader`, `Pipeline` and `Recovery` serve all releases of Kafka. The
differences between Kafka 0.7 and later releases are in a `ReadFormat` (`read/read_format.py`), which `read/kafka.py`
and `read/kafka07.py` implement. A write begins in `write/sink_writer.py`.
"""
