"""Golden files: what a release stores and says, so that later releases are held to read it.

`python -m tests.golden` writes the files of the version in development (docs/release.md).
"""
