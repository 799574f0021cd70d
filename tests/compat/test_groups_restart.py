"""The broker goes away under running groups and comes back: commits are there, members keep their places and go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.compat.clients.java_members import HOW, JavaProcess
from tests.compat.clients.members import AIO, CONSUMER, COOPERATIVE, EAGER, PYTHON, Crowd, Kind, Member, Wish
from tests.compat.conftest import SHORT_SESSIONS, topic_maker, unused_name
from tests.compat.group_kit import EACH, PARTITIONS, commit_all, committed, lost_sockets, member_ids, places, write
from tests.kit import jvm
from tests.kit.brokers import Broker, broker_under_test

# Longer than any broker needs to come back; the sessions of consumer groups are the broker's to choose.
SESSION_MS = 60_000
FACES = ((EAGER, AIO, PYTHON), (COOPERATIVE, COOPERATIVE), (CONSUMER, CONSUMER))

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="module")
def mortal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that the tests of this module may stop and kill."""
    settings = {**SHORT_SESSIONS, "group.consumer.session.timeout.ms": "10000"}
    with broker_under_test(tmp_path_factory.mktemp("mortal"), settings) as running:
        yield running


@pytest.fixture(autouse=True)
def vain_attempts() -> Iterator[None]:
    """Members of kafka-python try in vain while the broker is gone."""
    with lost_sockets():
        yield


class Party(NamedTuple):
    """One group: its name and who is in it."""

    group: str
    members: list[Member]


@pytest.fixture(scope="module")
def java(mortal: Broker) -> Iterator[JavaProcess]:
    """The current version's consumers."""
    with JavaProcess(jvm.CURRENT, mortal.address) as process:
        yield process


@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_groups_live_through_a_restart(mortal: Broker, how: str) -> None:
    live_through_a_restart(mortal, how, FACES)


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache Kafka's consumers: {jvm.java_missing()}")
@pytest.mark.parametrize("how", ["SIGTERM", "SIGKILL"])
def test_java_groups_live_through_a_restart(mortal: Broker, java: JavaProcess, how: str) -> None:
    live_through_a_restart(mortal, how, [(java.kind(each), java.kind(each)) for each in HOW])


def live_through_a_restart(mortal: Broker, how: str, faces: Sequence[Sequence[Kind]]) -> None:
    """A group of each face has read and committed; the broker goes and comes; all go on where they were."""
    address, topic = mortal.address, topic_maker(mortal.address, "restart")(PARTITIONS)
    everything = places(topic)
    with Crowd(address) as crowd:
        parties = [Party(unused_name("party"), []) for _ in faces]
        for party, kinds in zip(parties, faces, strict=True):
            wish = Wish(party.group, (topic,), session_ms=SESSION_MS)
            party.members.extend(crowd.join(kind, wish) for kind in kinds)
        records = write(address, topic)
        for party in parties:
            crowd.share(everything, *party.members)
            crowd.read(records, *party.members)
            commit_all(party.members, everything)
        before = member_ids(address, [party.group for party in parties])

        if how == "SIGKILL":
            mortal.kill()
        else:
            assert mortal.stop() == mortal.clean_exit
        mortal.start()

        for party in parties:
            assert committed(address, party.group, everything) == dict.fromkeys(everything, EACH)
        more = write(address, topic, EACH)
        for party in parties:
            crowd.read(more, *party.members)
            crowd.share(everything, *party.members)
            commit_all(party.members, everything, 2 * EACH)
        assert member_ids(address, [party.group for party in parties]) == before, "nobody had to join again"
