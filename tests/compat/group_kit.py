"""What tests of groups share: places and records of a topic, what is committed, a member that can be killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import confluent_kafka as ck

from tests.compat.clients import Confluent, Record, doomed_member
from tests.compat.clients.confluent import QUIET
from tests.compat.clients.members import Kind, Member, Place, Seen
from tests.compat.clients.model import DEADLINE_S
from tests.kit.brokers import wait_until

PARTITIONS = 6
EACH = 5
SHORT_MS = 1500
NOTHING = -1001  # how librdkafka says that nothing is committed

LOADING = (
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
)


def places(topic: str, partitions: int = PARTITIONS) -> list[Place]:
    return [(topic, partition) for partition in range(partitions)]


def write(address: str, topic: str, first: int = 0, partitions: int = PARTITIONS) -> list[Seen]:
    """EACH records into each partition, which holds `first` already."""
    records = [Record(b"x", partition=p) for p in range(partitions) for _ in range(EACH)]
    Confluent().write(address, topic, records)
    return [Seen(topic, p, first + n) for p in range(partitions) for n in range(EACH)]


def committed(address: str, group: str, wanted: list[Place]) -> dict[Place, int]:
    """The group's offsets, as a consumer asks for them that has not joined; waits while the coordinator loads.

    (librdkafka's AdminClient crashes when it is told that the coordinator is loading.)
    """
    settings = {"bootstrap.servers": address, "group.id": group, "log_level": QUIET}
    found: dict[Place, int] = {}
    with closing(ck.Consumer(settings)) as outsider:

        def answered() -> bool:
            try:
                told = outsider.committed([ck.TopicPartition(*place) for place in wanted], DEADLINE_S)
            except ck.KafkaException as error:
                if error.args[0].code() in LOADING:
                    return False
                raise
            found.update({(each.topic, each.partition): each.offset for each in told})
            return True

        wait_until(answered, f"the offsets of {group}")
    return found


def commit_all(members: list[Member], wanted: list[Place], end: int = EACH) -> None:
    """Have the members of a group commit until they have come to the end of each partition, and the broker knows."""
    address, group = members[0].address, members[0].wish.group

    def done() -> bool:
        for member in members:
            member.commit()
        return committed(address, group, wanted) == dict.fromkeys(wanted, end)

    wait_until(done, f"{group} is at {end} everywhere")


@contextmanager
def doomed(kind: Kind, address: str, group: str, topic: str) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which says when it has been given partitions."""
    module = doomed_member.__name__
    command = [sys.executable, "-m", module, kind.name, address, group, topic, str(SHORT_MS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()
