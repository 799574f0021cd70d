"""Producer ids come from durable blocks, in order of asking, and fail with a retriable error."""

from collections.abc import Callable
from itertools import count

from kafkalite.cluster.producer_ids import ProducerIds
from kafkalite.errors import KafkaErrorCode


def test_ids_are_distinct_over_many_blocks() -> None:
    starts = count(0, 3)
    ids = ProducerIds(lambda then: then(range(start := next(starts), start + 3)))
    drawn: list[int] = []
    for _ in range(10):
        ids.draw(lambda producer_id, error: drawn.append(producer_id))
    assert drawn == list(range(10))


def test_no_producer_id_is_assigned_before_its_block_is_durable() -> None:
    asked: list[Callable[[range | None], None]] = []
    ids = ProducerIds(asked.append)
    drawn: list[tuple[int, int]] = []
    for _ in range(3):
        ids.draw(lambda producer_id, error: drawn.append((producer_id, error)))
    assert drawn == [] and len(asked) == 1
    asked[0](range(100, 102))
    assert drawn == [(100, 0), (101, 0)] and len(asked) == 2
    asked[1](range(200, 202))
    assert drawn == [(100, 0), (101, 0), (200, 0)]


def test_failed_block_fails_waiting_requests_only() -> None:
    asked: list[Callable[[range | None], None]] = []
    ids = ProducerIds(asked.append)
    drawn: list[tuple[int, int]] = []
    ids.draw(lambda producer_id, error: drawn.append((producer_id, error)))
    asked[0](None)
    assert drawn == [(-1, KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    ids.draw(lambda producer_id, error: drawn.append((producer_id, error)))
    asked[1](range(7, 8))
    assert drawn[-1] == (7, 0)
