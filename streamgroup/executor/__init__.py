"""The code that runs in Spark's tasks: fetch planned ranges and decode them, and write rows.

`read/fetcher.py` is the entry. One `RangeReader`, one `Pipeline` and one `Recovery` serve every Kafka. A `ReadFormat`
(`read/read_format.py`) has the differences between Kafka and Kafka 0.7, carried out in `read/kafka.py` and in
`read/kafka07.py`. Rows are written by `write/sink_writer.py`.
"""
