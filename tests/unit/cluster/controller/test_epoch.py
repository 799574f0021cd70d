"""Reads of `/controller_epoch`: their result, and their end within the limit."""

import pytest

from kafkalite.cluster.controller.epoch import LIMIT_S, ControllerEpochReader
from kafkalite.coordination.znodes.controller import CONTROLLER_EPOCH
from tests.unit.cluster.controller.kit import Service


class NoAnswer:
    """A session whose service is out of reach: reads wait."""

    def get(self, *_arguments: object) -> None: ...


@pytest.mark.parametrize(("data", "epoch"), [(b"7", 7), (b"x", -1), (None, -1)])
def test_epoch_is_read_once(data: bytes | None, epoch: int) -> None:
    service = Service()
    if data is not None:
        service.write(CONTROLLER_EPOCH, data)
    found: list[int] = []
    ControllerEpochReader(service.embedded.connect(lambda: None), service.clock).read_epoch(found.append)
    service.clock.advance(2_000 * LIMIT_S)
    assert found == [epoch]


def test_read_without_an_answer_ends_at_the_limit() -> None:
    service = Service()
    found: list[int] = []
    ControllerEpochReader(NoAnswer(), service.clock).read_epoch(found.append)  # type: ignore[arg-type]
    service.clock.advance(999 * LIMIT_S)
    assert found == []
    service.clock.advance(1)
    assert found == [-1]
