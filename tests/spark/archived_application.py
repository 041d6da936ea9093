"""A Spark application that loads the classes which tests need, and ends: its JVM archives them as it exits.

    python archived_application.py <directory> <flags of the JVM>

It writes the id of its JVM to `<directory>/jvm`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf


def main() -> None:
    home, flags = Path(sys.argv[1]), sys.argv[2]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": flags,
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.local.dir": str(home / "local"),
    }
    builder = SparkSession.builder.master("local[1]").appName("archive")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    (home / "jvm").write_text(str(session._jvm.java.lang.ProcessHandle.current().pid()))
    (home / "lines").mkdir()
    (home / "lines" / "one").write_text("a line\n")
    same = udf(lambda line: line, "string", useArrow=False)
    lines = session.readStream.text(str(home / "lines")).select(same("value").alias("value"))
    parquet = lines.writeStream.format("parquet").option("path", str(home / "rows"))
    batches = lines.writeStream.foreachBatch(lambda frame, _: frame.collect())
    for number, sink in enumerate((parquet, batches)):
        writer = sink.option("checkpointLocation", str(home / f"checkpoint{number}"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(120), "the archive's application has no end"
    session.read.parquet(str(home / "rows")).groupBy("value").count().orderBy("value").collect()
    session.stop()


if __name__ == "__main__":
    main()
