"""What runs in Spark's tasks: fetch planned ranges and decode them.

`fetcher.py` is the entry. One `Reader`, one `Pipeline` and one `Recovery` serve every Kafka. What differs between Kafka
and Kafka 0.7 is a `ReadFormat` (`read_format.py`), carried out in `kafka.py` and in `kafka07.py`.
"""
