"""Groups of one kind of client, and of several: who owns what, what is read, where the next one goes on.

The brokers allow short sessions, so that a test need not wait for the death of a member.
"""

from __future__ import annotations

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.compat.group_stories import anothers_partitions_are_not_committed, restarted_one_by_one, what_comes_later
from tests.kit.clients.groups import EACH, PARTITIONS, SHORT_MS, commit_all, doomed, partitions_of, write
from tests.kit.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, KINDS, PYTHON, Crowd, Kind, Wish
from tests.kit.clients.sdk import SDK_CONSUMER, SDK_COOPERATIVE, SDK_KINDS, SDK_RANGE

# How librdkafka and the SDK report that another member has the same name; the other two libraries only go on trying.
FENCED = {
    EAGER: "fenced",
    COOPERATIVE: "fenced",
    CONSUMER: "instance ID is still used",
    SDK_RANGE: "FENCED_INSTANCE_ID",
    SDK_COOPERATIVE: "FENCED_INSTANCE_ID",
    SDK_CONSUMER: "UNRELEASED_INSTANCE_ID",
}
KIP_848 = (CONSUMER, SDK_CONSUMER)

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(params=[*KINDS, *SDK_KINDS], ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of member in turn."""
    return request.param


def test_members_join_and_leave(group_address: str, crowd: Crowd, kind: Kind, new_group_topic: MakeTopic) -> None:
    """Every partition has one owner while members join and leave; new owners start at the committed offset."""
    topic, group = new_group_topic(PARTITIONS), unused_name("group")
    first_records, everything = write(group_address, topic), partitions_of(topic)
    wish = Wish(group, (topic,))
    first = crowd.join(kind, wish)
    crowd.share(everything, first)
    second = crowd.join(kind, wish)
    crowd.share(everything, first, second)
    third = crowd.join(kind, wish)
    crowd.share(everything, first, second, third)
    crowd.read(first_records, first, second, third)
    first.leave()
    crowd.share(everything, second, third)
    crowd.read(first_records, first, second, third)
    second.leave()
    crowd.share(everything, third)
    commit_all([third], everything)
    third.leave()
    more_records = write(group_address, topic, EACH)
    next_one = crowd.join(kind, wish)
    crowd.read(more_records, next_one)
    assert set(next_one.seen) == set(more_records), "nothing is read again that was committed"


def test_different_clients_share_a_group(crowd: Crowd, new_group_topic: MakeTopic) -> None:
    """librdkafka, aiokafka and kafka-python agree on `range`; each of them leads once."""
    topic, group = new_group_topic(PARTITIONS), unused_name("mixed")
    everything = partitions_of(topic)
    for kinds in ((EAGER, AIO, PYTHON), (AIO, PYTHON, EAGER), (PYTHON, EAGER, AIO)):
        members = [crowd.join(kinds[0], Wish(group, (topic,)))]
        crowd.share(everything, *members)
        members += [crowd.join(kind, Wish(group, (topic,))) for kind in kinds[1:]]
        crowd.share(everything, *members)
        for member in members:
            member.leave()


def test_a_dead_member_is_replaced(group_address: str, crowd: Crowd, kind: Kind, new_group_topic: MakeTopic) -> None:
    """Killed without a word, it loses its partitions when its session is over."""
    topic, group = new_group_topic(PARTITIONS), unused_name("death")
    everything = partitions_of(topic)
    survivor = crowd.join(kind, Wish(group, (topic,), session_ms=SHORT_MS))
    crowd.share(everything, survivor)
    with doomed(kind, group_address, group, topic) as other:
        crowd.wait(lambda: 0 < len(survivor.assigned) < PARTITIONS, "the newcomer's share")
        assert other.stdout is not None
        assert other.stdout.readline() == "assigned\n"
        other.kill()
    crowd.share(everything, survivor)


def test_static_members(group_address: str, crowd: Crowd, kind: Kind, new_group_topic: MakeTopic) -> None:
    """A member that returns gets its partitions again without a rebalance; of two with one name, one is fenced."""
    topic, group = new_group_topic(PARTITIONS), unused_name("static")
    records, everything = write(group_address, topic), partitions_of(topic)
    one, two = (Wish(group, (topic,), instance=name) for name in ("one", "two"))
    first = crowd.join(kind, one)
    crowd.share(everything, first)
    second = crowd.join(kind, two)
    crowd.share(everything, first, second)
    was, has = first.assigned, second.assigned
    first.leave()
    again = crowd.join(kind, one)
    crowd.wait(lambda: again.assigned, "partitions for the one that came back")
    assert (again.assigned, second.assigned) == (was, has)
    crowd.read(records, again, second)
    assert len(second.seen) == len(set(second.seen)), "the other one read on without a rebalance"

    if kind not in FENCED:
        return
    rival = crowd.join(kind, one)
    refused = rival if kind in KIP_848 else again  # KIP-848 keeps the old one, the classic protocol takes the new one
    assert FENCED[kind] in repr(crowd.refused(refused))


def test_rolling_restart_of_members(crowd: Crowd, kind: Kind, new_group_topic: MakeTopic) -> None:
    """Each record is read once."""
    restarted_one_by_one(crowd, kind, new_group_topic(PARTITIONS))


def test_members_get_later_topics_and_partitions(crowd: Crowd, kind: Kind, new_group_topic: MakeTopic) -> None:
    """Partitions added under a running group, and topics that match its pattern, find their owners."""
    what_comes_later(crowd, kind, new_group_topic(2))


def test_commit_of_a_foreign_partition_is_rejected(crowd: Crowd, new_group_topic: MakeTopic) -> None:
    """A commit that is rejected in part does not affect the other members."""
    anothers_partitions_are_not_committed(crowd, CONSUMER, new_group_topic(PARTITIONS))
