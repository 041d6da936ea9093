"""A notebook's cells with Kafka, where the format is one word: `kafka` or `streamgroup`. Both print the same.

spark-submit examples/notebook.py FORMAT SERVERS TOPIC COPY

TOPIC and COPY are two empty topics with two partitions each. `kafka` needs Spark's connector, too (docs/notebook.md).
"""

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

SCHEMA = "id LONG, customer STRING, amount INT, at TIMESTAMP"


def title(text: str) -> None:
    """Print the title of a cell."""
    print(f"-- {text}")


class Notebook:
    """The cells, in their order. `form` is the one word; `home` is a new directory for checkpoints."""

    def __init__(self, spark: SparkSession, form: str, servers: str, *topics: str, home: str) -> None:
        self.spark, self.form, self.home = spark, form, home
        self.topic, self.copy = topics
        self.servers = {"kafka.bootstrap.servers": servers}

    def run(self) -> None:
        """Run all cells."""
        for cell in (self.write, self.read, self.aggregate, self.ranges, self.batches, self.windows, self.copied):
            cell()

    def batch(self, topic: str, **options: str) -> DataFrame:
        """Return the records of a topic."""
        return self.spark.read.format(self.form).options(**self.servers, subscribe=topic, **options).load()

    def stream(self, **options: str) -> DataFrame:
        """Return the orders as a stream, from their beginning."""
        reader = self.spark.readStream.format(self.form).options(**self.servers, subscribe=self.topic, **options)
        return self.parsed(reader.option("startingOffsets", "earliest").load())

    def parsed(self, records: DataFrame) -> DataFrame:
        """Return the orders that records hold."""
        return records.select(
            "partition", "offset", f.from_json(f.col("value").cast("string"), SCHEMA).alias("o")
        ).select("partition", "offset", "o.*")

    def write(self) -> None:
        """Write twenty orders, keyed by customer and with a header."""
        title("write to Kafka")
        orders = self.spark.range(20).selectExpr(
            "id",
            "concat('c', id % 3) AS customer",
            "CAST(id * 7 % 10 AS INT) AS amount",
            "timestamp_seconds(1700000000 + 30 * id) AS at",
        )
        rows = orders.select(
            f.col("customer").alias("key"),
            f.to_json(f.struct("*")).alias("value"),
            f.expr("array(struct('source' AS key, CAST('shop' AS BINARY) AS value))").alias("headers"),
        )
        rows.coalesce(1).write.format(self.form).options(**self.servers, topic=self.topic).mode("append").save()
        print("20 orders written")

    def read(self) -> None:
        """Read them as one batch."""
        title("batch read: the schema, and rows")
        records = self.batch(self.topic, includeHeaders="true")
        records.printSchema()
        self.parsed(records).orderBy("id").show(3, truncate=False)
        title("keys, headers, kind of timestamp")
        values = "CAST(key AS STRING) AS key", "CAST(headers[0].value AS STRING) AS source", "timestampType"
        records.selectExpr(*values).groupBy("key", "source", "timestampType").count().orderBy("key").show()

    def aggregate(self) -> None:
        """Aggregate a batch read."""
        title("aggregation")
        orders = self.parsed(self.batch(self.topic))
        orders.groupBy("customer").agg(f.count("*").alias("orders"), f.sum("amount").alias("sum")).orderBy(
            "customer"
        ).show()

    def ranges(self) -> None:
        """Read by times and offsets."""
        title("ranges by timestamp and by offset")
        first = self.batch(self.topic).select(f.min(f.expr("unix_millis(timestamp)"))).collect()[0][0]
        until = f'{{"{self.topic}": {{"0": 2, "1": 3}}}}'
        ranges: list[dict[str, str]] = [
            {"startingTimestamp": str(first)},
            {"endingTimestamp": str(first)},
            {"endingOffsets": until},
        ]
        for options in ranges:
            print(f"{next(iter(options))}: {self.batch(self.topic, **options).count()} rows")

    def batches(self) -> None:
        """Read a stream with foreachBatch, and look at its progress."""
        title("stream with foreachBatch, at most 8 offsets each")

        def show(rows: DataFrame, batch: int) -> None:
            print(f"batch {batch}: {rows.count()} rows, sum {rows.agg(f.sum('amount')).collect()[0][0]}")

        writer = self.stream(maxOffsetsPerTrigger="8").writeStream.foreachBatch(show)
        query = writer.trigger(availableNow=True).option("checkpointLocation", f"{self.home}/batches").start()
        query.awaitTermination()
        title("lastProgress")
        last = query.lastProgress
        assert last is not None
        print(f"batchId {last.batchId}, numInputRows {last.numInputRows}, sources {len(last.sources)}")
        print(f"rows of the source {last.sources[0].numInputRows}, sink {last.sink.description}")

    def windows(self) -> None:
        """Count the orders of each two minutes; the watermark closes a window."""
        title("windowed count with a watermark, memory sink")
        counts = self.stream().withWatermark("at", "1 minute")
        counts = counts.groupBy(f.window("at", "2 minutes")).count()
        name = f"windows_of_{self.form}"
        writer = counts.selectExpr("window.start AS start", "count").writeStream.format("memory").queryName(name)
        query = writer.trigger(availableNow=True).option("checkpointLocation", f"{self.home}/windows").start()
        query.awaitTermination()
        self.spark.table(name).orderBy("start").show()
        last = query.lastProgress
        assert last is not None
        print(f"watermark {last.eventTime['watermark']}, rows of state {last.stateOperators[0].numRowsTotal}")

    def copied(self) -> None:
        """Write a stream to another topic, and read it back."""
        title("stream to Kafka, read back")
        big = self.stream().where("amount > 6").selectExpr("customer AS key", "CAST(amount AS STRING) AS value")
        writer = big.writeStream.format(self.form).options(**self.servers, topic=self.copy)
        query = writer.trigger(availableNow=True).option("checkpointLocation", f"{self.home}/copied").start()
        query.awaitTermination()
        back = self.batch(self.copy).selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        back.groupBy("key", "value").count().orderBy("key", "value").show()


if __name__ == "__main__":
    session = SparkSession.builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    with tempfile.TemporaryDirectory() as directory:
        Notebook(session, *sys.argv[1:5], home=directory).run()
