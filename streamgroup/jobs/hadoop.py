"""`Files` over Hadoop's FileSystem in Spark's JVM: the guard reads every file system that Spark can write to."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

_EXISTS = ("FileAlreadyExistsException",)


class HadoopFiles:
    """The file systems of this session's Hadoop configuration: local directories, HDFS, object stores."""

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def _at(self, path: str) -> tuple[Any, Any]:
        hadoop_path = self._jvm.org.apache.hadoop.fs.Path(path)
        return hadoop_path.getFileSystem(self._conf), hadoop_path

    def qualified(self, path: str) -> str:
        """Return the absolute path with its scheme."""
        system, at = self._at(path)
        return str(at.makeQualified(system.getUri(), system.getWorkingDirectory()).toString())

    def names(self, directory: str) -> list[str]:
        """Return the names in a directory, or no names if it does not exist."""
        system, at = self._at(directory)
        return [status.getPath().getName() for status in system.listStatus(at)] if system.exists(at) else []

    def read(self, path: str) -> str | None:
        """Return the text of a file, or None if it does not exist."""
        system, at = self._at(path)
        if not system.exists(at):
            return None
        stream = system.open(at)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def create(self, path: str, text: str) -> bool:
        """Create a file and its directories. Return False if the file exists already."""
        try:
            self._write(path, text, overwrite=False)
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _EXISTS:
                return False
            raise
        return True

    def replace(self, path: str, text: str) -> None:
        """Write a file, and replace an existing one."""
        self._write(path, text, overwrite=True)

    def _write(self, path: str, text: str, *, overwrite: bool) -> None:
        system, at = self._at(path)
        stream = system.create(at, overwrite)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
