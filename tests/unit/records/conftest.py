"""Every test here that asks for `kernel` runs with each of the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamgroup.errors import ConfigError
from streamgroup.records import kernel as kernels


@pytest.fixture(params=["python", "compiled"], scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    before = kernels.name()
    try:
        kernels.use(request.param)
    except ConfigError:
        pytest.skip("the compiled kernel has not been built")
    yield request.param
    kernels.use(before)
