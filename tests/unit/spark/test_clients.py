"""The clients of a process: one for each set of options, created again after a fork."""

import os
from collections.abc import Iterator

import pytest
from kafkalite_sdk import TopicPartition
from pyspark_kafkalite import clients

from kafkalite.testing.thread import BrokerThread


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    clients.close_clients()


def test_client_is_kept_for_equal_options(kafkalite_broker: BrokerThread) -> None:
    options = {"bootstrap_servers": kafkalite_broker.address, "client_id": "a"}
    first = clients.admin(options)
    assert clients.admin(dict(reversed(options.items()))) is first
    assert clients.admin({**options, "client_id": "b"}) is not first
    assert clients.reader(options, "read_committed") is not clients.reader(options, "read_uncommitted")


def test_idle_client_is_closed_when_another_is_used(
    kafkalite_broker: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"bootstrap_servers": kafkalite_broker.address, "client_id": "a"}
    first = clients.admin(options)
    monkeypatch.setattr(clients, "IDLE_S", -1.0)
    assert clients.admin(options) is first
    clients.admin({**options, "client_id": "b"})
    assert clients.admin(options) is not first


def test_child_of_a_fork_has_clients_of_its_own(kafkalite_broker: BrokerThread, kafkalite_topic: str) -> None:
    options = {"bootstrap_servers": kafkalite_broker.address}
    assert clients.admin(options).topics.list()
    pid = os.fork()
    if pid == 0:
        found = clients.admin(options).partitions.offsets({TopicPartition(kafkalite_topic, 0): -1})
        os._exit(0 if len(found.check()) == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert clients.admin(options).topics.list()
