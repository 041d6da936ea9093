"""Write the pictures of the pages into docs/pictures: `make pictures`."""

from __future__ import annotations

from pathlib import Path

from tools.pictures.gallery import DIRECTORY, PICTURES


def main(directory: Path) -> None:
    """Draw each picture anew, and remove those that are not drawn any more."""
    directory.mkdir(exist_ok=True)
    for old in directory.glob("*.svg"):
        if old.stem not in PICTURES:
            old.unlink()
    for name, draw in PICTURES.items():
        (directory / f"{name}.svg").write_text(draw())


if __name__ == "__main__":
    main(DIRECTORY)
