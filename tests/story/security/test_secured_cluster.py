"""Three brokers with SASL_SSL between them, SCRAM users and ACLs: replication, transactions, failures, rotation."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from kafkalite_sdk.admin import Acl, AclOperation, AclResource, NewCredential, ScramMechanism, UserMechanism
from kafkalite_sdk.blocking import Consumer, Producer

from kafkalite.errors import AuthenticationError, KafkaError, KafkaErrorCode
from kafkalite.model import Principal
from tests.story.security.secured_cluster import BROKER, SecuredCluster, password_of

WAIT_S = 60.0
PARTITIONS = 3


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with SecuredCluster(tmp_path_factory.mktemp("secured")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: SecuredCluster) -> SecuredCluster:
    """The cluster with all its brokers."""
    for broker_id in set(shared.broker_ids) - set(shared.running):
        shared.start(broker_id)
    return shared


def permit(cluster: SecuredCluster, topic: str, user: str = "alice") -> None:
    """Let a user write, read, and use transactions and groups whose names begin with that of the topic."""
    wanted = [
        (AclResource.TOPIC, AclOperation.WRITE),
        (AclResource.TOPIC, AclOperation.READ),
        (AclResource.GROUP, AclOperation.READ),
        (AclResource.TRANSACTIONAL_ID, AclOperation.WRITE),
    ]
    with cluster.admin() as admin:
        admin.acls.create(*(Acl(resource, topic, f"User:{user}", operation) for resource, operation in wanted)).check()


def read(cluster: SecuredCluster, topic: str, number: int, **options: Any) -> list[int]:
    """Read that many records in a group."""
    values: list[int] = []
    login = {**cluster.options("alice"), **options}
    with Consumer(cluster.bootstrap_servers, group=topic, auto_offset_reset="earliest", **login) as consumer:
        consumer.subscribe(topic)
        while len(values) < number:
            found = consumer.poll(WAIT_S)
            assert found, f"{len(values)} of {number} records"
            values += [int(each.value or b"") for each in found]
        consumer.commit()
    return values


class Load(threading.Thread):
    """Sends numbers in turn to the partitions of a topic until `finish`; each is acknowledged before the next one."""

    def __init__(self, cluster: SecuredCluster, topic: str, user: str, first: int = 0) -> None:
        super().__init__(daemon=True)
        self.next = first
        self.failure: Exception | None = None
        self._ending = threading.Event()
        self._moved = threading.Condition()
        self._producer = Producer(cluster.bootstrap_servers, **cluster.options(user))
        self._topic = topic

    def run(self) -> None:
        try:
            with self._producer as producer:
                while not self._ending.is_set():
                    producer.send(self._topic, b"%d" % self.next, partition=self.next % PARTITIONS).result()
                    with self._moved:
                        self.next += 1
                        self._moved.notify_all()
        except Exception as error:
            self.failure = error

    def progress(self, count: int = 20) -> None:
        """Wait until so many more records are acknowledged."""
        with self._moved:
            goal = self.next + count
            assert self._moved.wait_for(lambda: self.next >= goal, WAIT_S), (self.next, self.failure)

    def finish(self) -> int:
        """End; returns the number of acknowledged records."""
        self._ending.set()
        self.join(WAIT_S)
        assert self.failure is None, self.failure
        return self.next


def test_rights_replication_transactions_and_a_killed_leader(cluster: SecuredCluster) -> None:
    cluster.create_topic("orders", PARTITIONS)
    with Producer(cluster.bootstrap_servers, **cluster.options("alice")) as producer:
        with pytest.raises(KafkaError) as refused:
            producer.send("orders", b"0").result()
        assert refused.value.code == KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED  # of InitProducerId
    permit(cluster, "orders")
    for broker_id in cluster.broker_ids:
        found = {each.principal for each in cluster.connections(broker_id)} - {None}
        assert found == {Principal("User", BROKER)}, found
    options = cluster.options("alice")
    with Producer(cluster.bootstrap_servers, transactional_id="orders", **options) as producer:
        with producer.transaction():
            for each in range(30):
                producer.send("orders", b"%d" % each, partition=each % PARTITIONS)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("orders", b"99", partition=0).result()
            raise ZeroDivisionError
        values = read(cluster, "orders", 30, isolation_level="read_committed")
        victim = cluster.leader("orders", 0)
        cluster.kill(victim)
        cluster.expire(victim)
        with producer.transaction():
            for each in range(30, 60):
                producer.send("orders", b"%d" % each, partition=each % PARTITIONS)
    values += read(cluster, "orders", 30, isolation_level="read_committed")
    assert sorted(values) == list(range(60))
    cluster.start(victim)
    cluster.in_sync("orders")


@pytest.mark.parametrize(
    "rounds", [1, pytest.param(20, marks=[pytest.mark.torture, pytest.mark.long_form, pytest.mark.timeout(1800)])]
)
def test_certificates_and_users_change_under_load(cluster: SecuredCluster, rounds: int) -> None:
    """Certificates, the user of the brokers and that of a client: no request fails, each record is there once."""
    topic = f"rotated-{rounds}"
    cluster.create_topic(topic, PARTITIONS)
    permit(cluster, topic)
    permit(cluster, topic, "alice-2")
    add_user(cluster, "alice")
    load = Load(cluster, topic, "alice")
    load.start()
    load.progress()
    for number in range(rounds):
        rotate(cluster, load, topic, f"round-{number}")
    add_user(cluster, "alice-2")
    sent = load.finish()
    following = Load(cluster, topic, "alice-2", first=sent)
    following.start()
    following.progress()
    remove_user(cluster, "alice")
    with pytest.raises(AuthenticationError), Producer(cluster.bootstrap_servers, **cluster.options("alice")):
        pass
    following.progress()
    sent = following.finish()
    assert sorted(read(cluster, topic, sent, **cluster.options("alice-2"))) == list(range(sent))
    cluster.in_sync(topic)


def rotate(cluster: SecuredCluster, load: Load, topic: str, name: str) -> None:
    """Replace the certificates, and then the user of the brokers, by one restart of each, under load."""
    for broker_id in cluster.broker_ids:
        cluster.issue(broker_id, name)
    cluster.reload_certificates()
    load.progress()
    former, cluster.user = cluster.user, f"{BROKER}-2" if cluster.user == BROKER else BROKER
    add_user(cluster, cluster.user)
    for broker_id in cluster.broker_ids:
        cluster.stop(broker_id)
        load.progress()
        cluster.start(broker_id)
        cluster.in_sync(topic)
        load.progress()
    remove_user(cluster, former)
    for broker_id in cluster.broker_ids:
        principals = {each.principal for each in cluster.connections(broker_id)} - {None}
        assert principals == {Principal("User", cluster.user)}


def add_user(cluster: SecuredCluster, user: str) -> None:
    with cluster.admin() as admin:
        mechanism = UserMechanism(user, ScramMechanism.SCRAM_SHA_512)
        admin.users.alter({mechanism: NewCredential(password_of(user), 4096)}).check()


def remove_user(cluster: SecuredCluster, user: str) -> None:
    with cluster.admin() as admin:
        admin.users.alter({UserMechanism(user, ScramMechanism.SCRAM_SHA_512): None}).check()
