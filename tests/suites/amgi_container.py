"""The module `testcontainers.kafka` of amgi-aiokafka's tests, copied beside them: the broker of the suite."""

import os
from typing import Self


class KafkaContainer:
    """Nothing is started or stopped."""

    def __init__(self, **_: str) -> None:
        self._address = os.environ["KAFKALITE_SUITE_ADDRESS"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get_bootstrap_server(self) -> str:
        return self._address
