"""Every test that takes `engine` runs twice: on the Cython engine and on its plain twin."""

from typing import Any

import pytest

from tests.kit.record_engines import PY, C


@pytest.fixture(params=[C, PY], ids=["c", "py"], scope="session")
def engine(request: pytest.FixtureRequest) -> Any:
    return request.param
