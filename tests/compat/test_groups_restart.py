"""The broker goes away under running groups and comes back: commits are there, members keep their places and go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.compat.conftest import SHORT_SESSIONS, topic_maker, unused_name
from tests.kit import jvm
from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients.groups import (
    EACH,
    PARTITIONS,
    commit_all,
    committed,
    lost_sockets,
    member_ids,
    partitions_of,
    write,
)
from tests.kit.clients.java_members import HOW, JavaProcess
from tests.kit.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, PYTHON, Crowd, Kind, Member, Wish

# Longer than any broker needs to come back; the sessions of consumer groups are the broker's to choose.
SESSION_MS = 60_000
FACES = ((EAGER, AIO, PYTHON), (COOPERATIVE, COOPERATIVE), (CONSUMER, CONSUMER))

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of this module may stop and kill."""
    settings = {**SHORT_SESSIONS, "group.consumer.session.timeout.ms": str(SESSION_MS)}
    with broker_under_test(tmp_path_factory.mktemp("mortal"), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def vain_attempts() -> Iterator[None]:
    """Members of kafka-python try in vain while the broker is gone."""
    with lost_sockets():
        yield


class CrowdGroup(NamedTuple):
    """One group: its name and who is in it."""

    group: str
    members: list[Member]


@pytest.fixture(scope="module")
def java(mortal: Broker) -> Iterator[JavaProcess]:
    """The current version's consumers."""
    with JavaProcess(jvm.CURRENT, mortal.address) as process:
        yield process


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_groups_continue_after_a_broker_restart(mortal: Broker, how: str) -> None:
    live_through_a_restart(mortal, how, FACES)


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka's consumers: {jvm.java_missing()}")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_java_groups_continue_after_a_broker_restart(mortal: Broker, java: JavaProcess, how: str) -> None:
    live_through_a_restart(mortal, how, [(java.kind(each), java.kind(each)) for each in HOW])


def live_through_a_restart(mortal: Broker, how: str, faces: Sequence[Sequence[Kind]]) -> None:
    """A group of each face has read and committed; the broker goes and comes; all go on where they were."""
    address, topic = mortal.address, topic_maker(mortal.address, "restart")(PARTITIONS)
    everything = partitions_of(topic)
    with Crowd(address) as crowd:
        crowd_groups = [CrowdGroup(unused_name("crowd_group"), []) for _ in faces]
        for crowd_group, kinds in zip(crowd_groups, faces, strict=True):
            wish = Wish(crowd_group.group, (topic,), session_ms=SESSION_MS)
            crowd_group.members.extend(crowd.join(kind, wish) for kind in kinds)
        records = write(address, topic)
        for crowd_group in crowd_groups:
            crowd.share(everything, *crowd_group.members)
            crowd.read(records, *crowd_group.members)
            commit_all(crowd_group.members, everything)
        before = member_ids(address, [crowd_group.group for crowd_group in crowd_groups])

        if how == "SIGKILL":
            mortal.kill()
        else:
            assert mortal.stop() == mortal.clean_exit
        mortal.start()

        for crowd_group in crowd_groups:
            assert committed(address, crowd_group.group, everything) == dict.fromkeys(everything, EACH)
        more = write(address, topic, EACH)
        for crowd_group in crowd_groups:
            crowd.read(more, *crowd_group.members)
            crowd.share(everything, *crowd_group.members)
            commit_all(crowd_group.members, everything, 2 * EACH)
        assert member_ids(address, [crowd_group.group for crowd_group in crowd_groups]) == before, (
            "nobody had to join again"
        )
