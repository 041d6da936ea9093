"""Every test here that asks for `kernel` runs with each of the two."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streamgroup.errors import ConfigError
from streamgroup.kafka.records import kernel as kernels


@pytest.fixture(params=["python", "compiled"], scope="module")
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    before = kernels.name()
    try:
        kernels.use(request.param)
    except ConfigError:
        # The package works without a compiler. .ci/run installs one, so there both kernels are tested.
        pytest.skip("the compiled kernel is not built: no C compiler was found at the installation")
    yield request.param
    kernels.use(before)


@pytest.fixture
def kernel_as_before() -> Iterator[None]:
    """Have a test use any kernel."""
    before = kernels.name()
    yield
    kernels.use(before)
