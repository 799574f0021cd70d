"""Consumers change over from the classic protocol to the consumer protocol (KIP-848) one after the other, and back.

The other members continue: each record is read, and no committed record is read again.
"""

from __future__ import annotations

from collections.abc import Iterator

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import MakeTopic, unused_name
from tests.kit import jvm
from tests.kit.clients.confluent import QUIET
from tests.kit.clients.groups import EACH, PARTITIONS, commit_all, evenly_shared, partitions_of, write
from tests.kit.clients.java import JAVA_VERSIONS
from tests.kit.clients.java_members import JavaProcess
from tests.kit.clients.members import AIO, CONSUMER, EAGER, PYTHON, Crowd, Kind, Wish
from tests.kit.clients.model import DEADLINE_S
from tests.kit.isolated import dropped_later, killable

MEMBERS = 3
Type = ck.ConsumerGroupType

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def java(group_address: str) -> Iterator[JavaProcess]:
    """Java's consumers of the current version."""
    if (reason := jvm.java_missing()) is not None:
        pytest.skip(f"Apache Kafka's consumers: {reason}")
    with JavaProcess(JAVA_VERSIONS[0], group_address) as process:
        yield process


@killable
def type_of(address: str, group: str) -> Type:
    """The group type that the broker returns."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": QUIET})
    dropped_later(admin)
    found = admin.list_consumer_groups().result(DEADLINE_S)
    answer: Type = next(each.type for each in found.valid if each.group_id == group)
    return answer


def changed_over_and_back(crowd: Crowd, topic: str, classic: Kind, modern: Kind) -> None:
    """Three members are replaced in turn by such of the other protocol, and then by such of the first again."""
    wish, everything, kinds = (
        Wish(unused_name("migration"), (topic,)),
        partitions_of(topic),
        [modern] * 3 + [classic] * 3,
    )
    members = [(classic, crowd.join(classic, wish)) for _ in range(MEMBERS)]

    def is_stable() -> bool:
        return evenly_shared([member for _, member in members], everything)

    crowd.wait(is_stable, "an even share")
    for step, kind in enumerate(kinds):
        crowd.read(write(crowd.address, topic, step * EACH), *crowd.members)
        commit_all([member for _, member in members], everything, (step + 1) * EACH)
        received_before = {member: len(member.seen) for member in crowd.members}
        members.pop(0)[1].leave()
        members.append((kind, crowd.join(kind, wish)))
        crowd.wait(is_stable, f"an even share after turn {step}")
        modern_too = any(each is modern for each, _ in members)
        again = [seen for member in crowd.members for seen in member.seen[received_before.get(member, 0) :]]
        assert not again, "what was committed is read again"
        assert type_of(crowd.address, wish.group) == (Type.CONSUMER if modern_too else Type.CLASSIC)
    crowd.read(write(crowd.address, topic, len(kinds) * EACH), *crowd.members)


@pytest.mark.parametrize("classic", [EAGER, AIO, PYTHON], ids=lambda kind: kind.name)
def test_members_migrate_to_the_consumer_protocol_and_back(
    crowd: Crowd, new_group_topic: MakeTopic, classic: Kind
) -> None:
    """To librdkafka's members of the consumer protocol; not from its `cooperative-sticky`, which sends user data."""
    changed_over_and_back(crowd, new_group_topic(PARTITIONS), classic, CONSUMER)


@pytest.mark.parametrize("how", ["range", "cooperative-sticky"])
def test_java_members_migrate_to_the_consumer_protocol_and_back(
    crowd: Crowd, new_group_topic: MakeTopic, java: JavaProcess, how: str
) -> None:
    """Java's consumers by both protocols."""
    changed_over_and_back(crowd, new_group_topic(PARTITIONS), java.kind(how), java.kind("consumer"))
