"""Sequences of producers after an election, on a partition with several replicas."""

from pathlib import Path

import pytest

from kafkalite.cluster.partition.append import Append
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from tests.unit.cluster.partition.test_leadership import NOT_LEADER
from tests.unit.cluster.partition.test_roles import THREE, Led
from tests.unit.storage.damage import batch


def test_gap_of_sequences_counts_once_a_follower_has_confirmed_the_leadership(tmp_path: Path) -> None:
    """Before that, another broker may lead already and have the batches in between."""

    led = Led(tmp_path)

    def send(sequence: int) -> int:
        found: list[int] = []
        data = batch(1, producer_id=5, producer_epoch=0, base_sequence=sequence)
        led.partition.append(Append(memoryview(data), 1, lambda done: found.append(done.error)))
        led.written()
        return found[0]

    assert send(0) == 0
    led.fetched(2, 1)
    assert send(2) == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    led.lead(3)
    assert send(2) == NOT_LEADER
    led.fetched(2, 1)
    assert send(2) == KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(1) == 0


@pytest.mark.parametrize("replicas", [(1,), THREE], ids=["one replica", "the only member of the ISR"])
def test_gap_of_sequences_counts_at_once_without_another_member_of_the_isr(
    tmp_path: Path, replicas: tuple[int, ...]
) -> None:
    led = Led(tmp_path, TopicConfig(), (1,), replicas)
    found: list[int] = []
    for sequence in (0, 2):
        data = batch(1, producer_id=5, producer_epoch=0, base_sequence=sequence)
        led.partition.append(Append(memoryview(data), 1, lambda done: found.append(done.error)))
        led.written()
    assert found == [0, KafkaErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]
