"""The clients at three brokers that form a cluster: each finds the leaders and the coordinators of all partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.conftest import topic_maker
from tests.kit.brokers import Broker, broker_under_test
from tests.kit.clients import Client, Record
from tests.kit.clients.groups import EACH, PARTITIONS, commit_all, partitions_of, write
from tests.kit.clients.members import AIO, CONSUMER, EAGER, PYTHON, Crowd, Kind, Wish

pytestmark = [
    pytest.mark.xdist_group("kafkalite-cluster"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with broker_under_test(tmp_path_factory.mktemp("cluster"), None, "kafkalite-cluster") as running:
        yield running


def test_records_of_all_leaders(cluster: Broker, client: Client) -> None:
    topic = topic_maker(cluster.address, "records")(PARTITIONS)
    sent = [Record(b"%d" % partition, b"key", partition=partition) for partition in range(PARTITIONS)]
    client.write(cluster.address, topic, sent, idempotent=True)
    for partition in range(PARTITIONS):
        (read,) = client.read(cluster.address, topic, 1, partition=partition)
        assert (read.value, read.key, read.offset) == (b"%d" % partition, b"key", 0)


@pytest.mark.parametrize("kind", [EAGER, CONSUMER, AIO, PYTHON], ids=lambda kind: kind.name)
def test_groups_of_all_coordinators(cluster: Broker, kind: Kind) -> None:
    topic = topic_maker(cluster.address, "group")(PARTITIONS)
    with Crowd(cluster.address) as crowd:
        members = [crowd.join(kind, Wish(f"{kind.name}-{number}", (topic,))) for number in range(3)]
        records = write(cluster.address, topic)
        for member in members:
            crowd.read(records, member)
            commit_all([member], partitions_of(topic), EACH)
