"""What tests of groups share: places and records of a topic, what is committed, who can be killed, our command."""

from __future__ import annotations

import gc
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import confluent_kafka as ck
from click.testing import Result
from confluent_kafka.admin import AdminClient

from tests.kit.brokers import wait_until
from tests.kit.clients import Confluent, Record, doomed_member
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.members import REFUSED, Kind, Member, Seen, TopicPartition
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import closed_later, dropped_later, killable

PARTITIONS = 6
EACH = 5
SHORT_MS = 4_000
NOTHING = -1001  # librdkafka's offset of a partition without a commit

LOADING = (
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
)


def partitions_of(topic: str, partitions: int = PARTITIONS) -> list[TopicPartition]:
    return [(topic, partition) for partition in range(partitions)]


def write(address: str, topic: str, first: int = 0, partitions: int = PARTITIONS) -> list[Seen]:
    """EACH records into each partition, which holds `first` already."""
    records = [Record(b"x", partition=p) for p in range(partitions) for _ in range(EACH)]
    Confluent().write(address, topic, records)
    return [Seen(topic, p, first + n) for p in range(partitions) for n in range(EACH)]


@killable
def committed(address: str, group: str, wanted: list[TopicPartition]) -> dict[TopicPartition, int]:
    """The group's offsets, as a consumer asks for them that has not joined; waits while the coordinator loads.

    (librdkafka's AdminClient crashes when it receives COORDINATOR_LOAD_IN_PROGRESS.)
    """
    settings = {"bootstrap.servers": address, "group.id": group, "log_level": QUIET}
    found: dict[TopicPartition, int] = {}
    outsider = ck.Consumer(settings)
    closed_later(outsider.close)

    def answered() -> bool:
        try:
            received = outsider.committed(
                [ck.TopicPartition(*topic_partition) for topic_partition in wanted], DEADLINE_S
            )
        except ck.KafkaException as error:
            if error.args[0].code() in LOADING:
                return False
            raise
        found.update({(each.topic, each.partition): each.offset for each in received})
        return True

    wait_until(answered, f"the offsets of {group}")
    return found


@killable
def member_ids(address: str, groups: Sequence[str]) -> dict[str, set[str]]:
    """The members of each group, from the broker."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    asked = admin.describe_consumer_groups(list(groups))
    return {group: {member.member_id for member in each.result(DEADLINE_S).members} for group, each in asked.items()}


def commit_all(members: list[Member], wanted: list[TopicPartition], end: int = EACH) -> None:
    """Have the members of a group commit until they have come to the end of each partition, and the broker knows.

    A commit that meets a rebalance is refused (a busy machine may begin one at any time) and repeated, as users do.
    """
    address, group = members[0].address, members[0].wish.group

    def done() -> bool:
        for member in members:
            with suppress(*REFUSED):
                member.commit()
        return committed(address, group, wanted) == dict.fromkeys(wanted, end)

    wait_until(done, f"{group} is at {end} everywhere")


def evenly_shared(members: Sequence[Member], wanted: list[TopicPartition]) -> bool:
    """Whether each place has one owner, and all have as many. Before that a partition may still be taken from who has
    read it and not committed."""
    owned = sorted(topic_partition for member in members for topic_partition in member.assigned)
    return owned == wanted and len({len(member.assigned) for member in members}) == 1


@contextmanager
def lost_sockets() -> Iterator[None]:
    """kafka-python leaves the sockets of vain attempts to the collector, and log records would keep them alive."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] in ("kafka", "aiokafka")]
    before = {name: logging.getLogger(name).disabled for name in names}
    for name in names:
        logging.getLogger(name).disabled = True
    try:
        yield
    finally:
        gc.collect()
        for name, was in before.items():
            logging.getLogger(name).disabled = was


@contextmanager
def doomed(
    kind: Kind, address: str, group: str, topic: str, history: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A member in a process of its own, which reports when it has been assigned partitions.

    history: a file to note there what it has read before it commits, and to say so after each commit; without one it
    commits nothing.
    """
    module = doomed_member.__name__
    command = [sys.executable, "-m", module, kind.name, address, group, topic, str(SHORT_MS)]
    command += [str(history)] if history is not None else []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def read_history(path: Path) -> list[Seen]:
    """The records in the history of a `doomed` member, without an incomplete last line."""
    lines = [line.split("\t") for line in path.read_text().split("\n")[:-1]]
    return [Seen(topic, int(partition), int(offset)) for topic, partition, offset in lines]


class Run(Protocol):
    """Runs the command: `group("describe", "billing", code=0)`; fails on any other exit code."""

    def __call__(self, *args: str, code: int = 0, stdin: str | None = None) -> Result: ...


def objects(done: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def one_line(done: Result) -> str:
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("kafkalite: "), done.stderr
    return done.stderr.removeprefix("kafkalite: ").strip()
