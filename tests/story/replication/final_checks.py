"""What must hold 10 virtual seconds after the last fault, for disks and histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafkalite.errors import KafkaErrorCode
from tests.kit.checker import DAMAGED, History, check
from tests.kit.replica_invariants import (
    Partition,
    batches_of_decreasing_epochs,
    different_batches_of_an_epoch,
    different_replicas,
    incomplete,
)
from tests.kit.server import fetch_request, fetched
from tests.story.replication.world import ReplicatedWorld
from tests.story.sdk.log_checks import Log
from tests.story.sdk.simulated_producer import Sent, named

COMPACTED = ("__consumer_offsets",)
FULL = "the last reading"


def check_in_sync(world: ReplicatedWorld) -> None:
    """Every partition has a leader, and every replica is in sync."""
    states, replicas = world.observed_states(), world.replicas()
    left = [*incomplete(states, replicas), *(f"{each} has no state" for each in replicas.keys() - states.keys())]
    assert not left, "\n".join(left)


async def check_replicas(world: ReplicatedWorld) -> None:
    """The replicas of each partition are equal below its high watermark; nothing is written meanwhile."""
    violations: list[str] = []
    for partition, replicas in world.replicas().items():
        high_watermark = await read_high_watermark(world, partition)
        logs = {}
        for broker_id in replicas:
            log = world.stored_log(broker_id, partition)
            if log is not None:
                logs[broker_id] = log
                violations += batches_of_decreasing_epochs(partition, broker_id, log)
            elif high_watermark:
                violations.append(f"{partition}: broker {broker_id} has no log")
        if not logs:
            continue
        compacted = partition[0] in COMPACTED
        violations += different_replicas(partition, logs, high_watermark, compacted=compacted)
        if not compacted:
            violations += different_batches_of_an_epoch(partition, logs)
    assert not violations, "\n".join(violations)


async def read_high_watermark(world: ReplicatedWorld, partition: Partition) -> int:
    """The high watermark in a response of the leader."""
    state = world.observed_states()[partition]
    request = fetch_request(partition[0], (partition[1], 0), partition_max_bytes=1)
    part = fetched(await world.call(state.leader, request, 12))[partition]
    assert part.error_code in (0, KafkaErrorCode.OFFSET_OUT_OF_RANGE), part  # the first records may be deleted
    high_watermark: int = part.high_watermark
    return high_watermark


def check_history(sent: Iterable[Sent], logs: Mapping[Partition, Log]) -> None:
    """The checker of histories finds nothing in what was acknowledged and what a full reading has."""
    history = History()
    numbers: dict[tuple[str, int], int] = {}
    found = {named(value): partition for partition, log in logs.items() for _, value in log}
    for each in sent:
        number = numbers[each.producer, each.number] = len(numbers)
        acknowledged = not each.cancelled and each.awaitable.exception() is None
        metadata = each.awaitable.result() if acknowledged else None
        stored = found.get((each.producer, each.number), (each.topic, DAMAGED))
        partition = stored if metadata is None else (metadata.topic, metadata.partition)
        history.sent(each.producer, partition, [number])
        if metadata is not None and metadata.offset >= 0:
            history.acknowledged([number], metadata.offset)
    history.reading(FULL, logs)
    for partition, log in logs.items():
        for offset, value in log:
            history.read(FULL, partition, offset, numbers.get(named(value), DAMAGED))
    anomalies = check(history, FULL)
    assert not anomalies, "\n".join(map(str, anomalies[:20]))
