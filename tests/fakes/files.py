"""The file systems of a job, as directories of this machine."""

from __future__ import annotations

from pathlib import Path


class LocalFiles:
    """`Files` over pathlib."""

    def qualified(self, path: str) -> str:
        return Path(path).absolute().as_uri()

    def _path(self, path: str) -> Path:
        return Path(path.removeprefix("file://"))

    def names(self, directory: str) -> list[str]:
        where = self._path(directory)
        return [entry.name for entry in where.iterdir()] if where.exists() else []

    def read(self, path: str) -> str | None:
        where = self._path(path)
        return where.read_text() if where.exists() else None

    def create(self, path: str, text: str) -> bool:
        where = self._path(path)
        where.parent.mkdir(parents=True, exist_ok=True)
        try:
            with where.open("x") as stream:
                stream.write(text)
        except FileExistsError:
            return False
        return True

    def replace(self, path: str, text: str) -> None:
        self._path(path).write_text(text)
