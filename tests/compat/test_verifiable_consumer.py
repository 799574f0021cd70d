"""Apache Kafka's own VerifiableConsumer, as its system tests use it, by both protocols; each member is a process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.conftest import MakeTopic, unused_name
from tests.kit import jvm
from tests.kit.brokers import wait_until
from tests.kit.clients.groups import EACH, PARTITIONS, SHORT_MS, committed, member_ids, partitions_of, write
from tests.kit.clients.members import Crowd, Wish
from tests.kit.clients.verifiable import HOW, Verifiable, verifiable

pytestmark = pytest.mark.skipif(
    jvm.java_missing() is not None, reason=f"Apache Kafka's VerifiableConsumer: {jvm.java_missing()}"
)


@pytest.mark.parametrize("how", HOW)
def test_verifiable_consumers(
    group_address: str, crowd: Crowd, new_group_topic: MakeTopic, tmp_path: Path, how: str
) -> None:
    """Two share and commit; one is killed, the other takes over; it leaves at once on SIGTERM."""
    topic, group = new_group_topic(PARTITIONS), unused_name("verifiable")
    everything, wish = partitions_of(topic), Wish(group, (topic,), session_ms=SHORT_MS)
    kind, records = verifiable(how, tmp_path), write(group_address, topic)
    first, second = crowd.join(kind, wish), crowd.join(kind, wish)
    crowd.share(everything, first, second)
    crowd.read(records, first, second)
    assert isinstance(first, Verifiable)
    first.kill()
    crowd.share(everything, second)
    more = write(group_address, topic, EACH)
    crowd.read(more, second)
    wait_until(lambda: committed(group_address, group, everything) == dict.fromkeys(everything, 2 * EACH), "commits")
    second.leave()
    assert member_ids(group_address, [group]) == {group: set()}
    assert committed(group_address, group, everything) == dict.fromkeys(everything, 2 * EACH)
