"""Generates broker ids from the version of `/brokers/seqid`, so that none is given out twice.

1. Each write of the node raises its version by one, and the version is the id (ZkBrokerIdGenerator of Apache Kafka).
2. In an older tree that was restored the version is behind the ids of brokers that registered later. A broker with a
   generated id, as its `meta.properties` has it, raises the version to its id when it starts or registers again.
3. An id that a registered broker, a replica or a config in the tree has is not given out, whatever the version is.
"""

import asyncio
import logging
from functools import partial
from typing import Any

from kafkalite.callbacks import gather
from kafkalite.clock import Outcome, Then, await_outcome
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import NoNodeError
from kafkalite.coordination.tree import Set, Stat
from kafkalite.coordination.znodes.brokers import generated_broker_id

LOGGER = logging.getLogger("kafkalite.cluster")
SETS_MAX = 1_000  # of a transaction
BEHIND_MAX = 1_000_000  # a larger difference comes from an id that was written by hand


async def generate(session: Coordination, reserved_id_max: int) -> int:
    """Return an id that no broker has. Raises CoordinationError.

    Arguments:
        session: with the coordination service.
        reserved_id_max: reserved.broker.max.id; generated ids are above it.
    """
    used = await _used(session)
    while True:
        stat: Stat = (await await_outcome(partial(session.set, znodes.BROKER_SEQUENCE, b""))).result()
        broker_id = generated_broker_id(stat.version, reserved_id_max)
        if broker_id not in used:
            return broker_id
        LOGGER.warning("broker id %d is in use, although %s is below it", broker_id, znodes.BROKER_SEQUENCE)


def raise_sequence(session: Coordination, broker_id: int, reserved_id_max: int, then: Then) -> None:
    """Raise the sequence to a generated id.

    Arguments:
        session: with the coordination service.
        broker_id: of this broker; a configured one changes nothing.
        reserved_id_max: as in `generate`.
        then: called with the outcome: the last id of the sequence if it was behind, else None.
    """

    def read(outcome: Outcome) -> None:
        if outcome.error is not None:
            then(outcome)
            return
        stat: Stat | None = outcome.value
        last = generated_broker_id(0 if stat is None else stat.version, reserved_id_max)
        behind = broker_id - last if stat is not None else 0
        if behind > BEHIND_MAX:
            LOGGER.error("%s is not raised to broker id %d, the last id is %d", znodes.BROKER_SEQUENCE, broker_id, last)
        if not 0 < behind <= BEHIND_MAX:
            then(Outcome())
            return
        _write(session, behind, lambda outcome: then(Outcome(last) if outcome.error is None else outcome))

    if broker_id <= reserved_id_max:
        then(Outcome())
    else:
        session.exists(znodes.BROKER_SEQUENCE, read)


def _write(session: Coordination, count: int, then: Then) -> None:
    """Write the node as often as it is behind; further writes of another broker only skip ids."""

    def written(outcome: Outcome) -> None:
        if outcome.error is None and count > SETS_MAX:
            _write(session, count - SETS_MAX, then)
        else:
            then(outcome)

    session.multi([Set(znodes.BROKER_SEQUENCE, b"")] * min(count, SETS_MAX), written)


async def _used(session: Coordination) -> set[int]:
    """The ids of registered brokers, of replicas and of configs. Nodes with invalid contents have none."""
    names = await _children(session, znodes.BROKER_IDS) + await _children(session, znodes.BROKER_CONFIGS)
    used = {int(name) for name in names if name.isdecimal()}
    topics = await _children(session, znodes.TOPICS)
    read: asyncio.Future[list[Outcome]] = asyncio.get_running_loop().create_future()
    gather([partial(session.get, znodes.topic_path(topic)) for topic in topics], read.set_result)
    for topic, outcome in zip(topics, await read, strict=True):
        used.update(_replicas(topic, outcome))
    return used


def _replicas(topic: str, outcome: Outcome) -> set[int]:
    if isinstance(outcome.error, NoNodeError):  # deleted meanwhile
        return set()
    try:
        node = znodes.decode_topic(znodes.topic_path(topic), outcome.result()[0])
    except znodes.ZnodeError as error:
        LOGGER.error("%s; its replicas are not known", error)
        return set()
    return {replica for replicas in node.replicas.values() for replica in replicas}


async def _children(session: Coordination, path: str) -> list[str]:
    outcome: Any = await await_outcome(partial(session.children, path))
    names: list[str] = [] if isinstance(outcome.error, NoNodeError) else outcome.result()[0]
    return names
