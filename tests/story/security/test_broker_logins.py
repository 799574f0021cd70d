"""Brokers of a cluster log in to each other by SASL, renew their sessions, and follow changed passwords."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kafkalite_sdk import Environment, Producer

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.writes import notice_of
from kafkalite.cluster.credentials.texts import encode_credential
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.keys import ConfigError
from kafkalite.coordination import znodes
from kafkalite.coordination.tree import Create, Delete
from kafkalite.coordination.znodes.quotas import user_path
from kafkalite.model import Principal
from kafkalite.net.sasl.scram import make_credential
from kafkalite.testing.memory_network import MemoryNetwork
from kafkalite.testing.simulated_cluster import SimulatedCluster, host_of
from kafkalite.testing.virtual_loop import pass_time, run_virtually, virtual_wall_ms
from tests.story.cluster.test_three_brokers import Client, until

BROKER, PASSWORD = "broker", "correct horse"
PACKAGE = "org.apache.kafka.common.security"
PREFIX = "listener.name.internal."
REAUTH_MS = 2_000
PARTITIONS = 6


def plain(password: str = PASSWORD, user: str = BROKER, **users: str) -> str:
    known = " ".join(f'user_{name}="{each}"' for name, each in (users or {user: password}).items())
    return f'{PACKAGE}.plain.PlainLoginModule required username="{user}" password="{password}" {known};'


def scram(password: str = PASSWORD, user: str = BROKER) -> str:
    return f'{PACKAGE}.scram.ScramLoginModule required username="{user}" password="{password}";'


def settings(mechanism: str, jaas: str, **more: str) -> dict[str, Any]:
    """Clients use plaintext, brokers SASL; only the user of the brokers may do what brokers do."""
    return {
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"{PREFIX}{mechanism.lower()}.sasl.jaas.config": jaas,
        "password.encoder.secret": "the secret of the encoder",
        "password.encoder.iterations": "1024",
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        **more,
    }


def user_node(mechanism: str, password: str, user: str) -> Create:
    """The node of a user."""
    credential = encode_credential(make_credential(mechanism, password))
    return Create(user_path(user), znodes.encode_configs({mechanism: credential}))


def store_user(cluster: SimulatedCluster, mechanism: str, password: str) -> None:
    """Write the user of the brokers into the tree, as `kafkalite user add` does before the first start."""
    tree, user = cluster.zookeeper.tree, user_node(mechanism, password, BROKER)
    paths = [path for path in (*znodes.parents(user.path), znodes.CONFIG_CHANGES) if tree.find(path) is None]
    creations = [Create(path, b"") for path in paths]
    tree.multi([*creations, user], tree.open_session(), 0)


def change_user(cluster: SimulatedCluster, change: Create | Delete) -> None:
    """Create or delete a user, and notify the brokers, as AlterUserScramCredentials does."""
    notice = notice_of(change.path.removeprefix("/config/"), znodes.CONFIG_CHANGES)
    cluster.brokers[1].running.metadata.multi([change, notice], Outcome.result)


def connections(cluster: SimulatedCluster) -> set[Any]:
    """The connections of the listener between brokers."""
    found: set[Any] = set()
    for each in cluster.brokers.values():
        if each.is_running:
            drivers: Any = each.running.listening._drivers.values()
            found |= {one for hub in drivers for one in hub.connections if one.listener == "INTERNAL"}
    return found


async def used(cluster: SimulatedCluster, user: str) -> None:
    """Wait until all connections between brokers are those of a user."""

    async def look() -> bool | None:
        return {each.principal for each in connections(cluster)} == {Principal("User", user)} or None

    await until(look)


async def in_sync(cluster: SimulatedCluster, client: Client, topic: str, isr: set[int]) -> None:
    """Wait until all partitions have this ISR."""

    async def look() -> bool | None:
        (found,) = (await client.metadata(1, topic)).topics
        return (all({*each.isr_nodes} == isr for each in found.partitions) and len(found.partitions) > 0) or None

    await until(look)


class World:
    """A cluster, not started yet, whose brokers log in to each other, and its clients.

    Arguments:
        directory: of the log directories.
        settings: of all brokers.
    """

    def __init__(self, directory: Path, settings: dict[str, Any]) -> None:
        self.network = MemoryNetwork(Random(1), delay_s=(0.0001, 0.002))
        self.cluster = SimulatedCluster(str(directory), self.network, 3, seed=1, settings=settings)
        self.client = Client(self.network)
        for broker_id, each in self.cluster.brokers.items():
            host = host_of(broker_id)
            each.settings["listeners"] = f"CLIENTS://{host}:9092,INTERNAL://{host}:9093"

    def environment(self) -> Environment:
        return Environment(dial=self.network.dial, random=Random(1), wall_ms=virtual_wall_ms)

    async def create(self, topic: str) -> None:
        """Create a topic whose replicas are all in sync."""
        controller = await self.client.controller(1, 2, 3)
        assert (await self.client.create(controller, topic, PARTITIONS, 3)).error_code == 0
        await in_sync(self.cluster, self.client, topic, {1, 2, 3})

    def configure(self, broker_id: int, mechanism: str, jaas: str) -> None:
        """Change the login module of a running broker."""
        running = self.cluster.brokers[broker_id].running
        key, passwords = f"{PREFIX}{mechanism.lower()}.sasl.jaas.config", running.config.passwords
        assert passwords is not None
        running.config = BrokerConfig(running.config.static, {}, {key: passwords.encode(key, jaas)})


def simulate(directory: Path, settings: dict[str, Any], scenario: Callable[[World], Coroutine[Any, Any, None]],
             users: dict[str, str] | None = None) -> None:  # fmt: skip
    async def main() -> None:
        world = World(directory, settings)
        for mechanism, password in (users or {}).items():
            store_user(world.cluster, mechanism, password)
        async with world.cluster:
            await scenario(world)

    run_virtually(main)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_brokers_log_in_and_renew_their_sessions(
    tmp_path: Path, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Connections stay open over many sessions, and no replica leaves the ISR."""

    async def scenario(world: World) -> None:
        await world.create("orders")
        await used(world.cluster, BROKER)
        before = connections(world.cluster)
        with caplog.at_level(logging.DEBUG, "kafkalite.authentication"):
            await pass_time(10 * REAUTH_MS / 1000)
        renewed = sum("has authenticated again" in each.getMessage() for each in caplog.records)
        assert connections(world.cluster) >= before and renewed >= 8 * len(before), (len(before), renewed)
        for partition, leader in (await world.client.leaders(1, "orders")).items():
            assert await world.client.produce(leader, "orders", partition, b"x") == 0
        users = [each.running.credentials for each in world.cluster.brokers.values()]
        assert len({each.salt_secret for each in users if each is not None}) == (mechanism != "PLAIN")

    jaas = plain() if mechanism == "PLAIN" else scram()
    reauth = {f"{PREFIX}{mechanism.lower()}.connections.max.reauth.ms": str(REAUTH_MS)}
    users = {} if mechanism == "PLAIN" else {mechanism: PASSWORD}
    simulate(tmp_path, settings(mechanism, jaas, **reauth), scenario, users)


def test_rejected_broker_is_reported_once_and_tries_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A broker with a wrong password fetches nothing; with the right one it catches up without a restart."""
    key = "scram-sha-512.sasl.jaas.config"

    async def scenario(world: World) -> None:
        await world.create("orders")
        third = world.cluster.brokers[3]
        await third.stop()
        third.settings[f"{PREFIX}{key}"] = scram("wrong")
        caplog.clear()
        await third.start()
        await pass_time(30.0)
        await in_sync(world.cluster, world.client, "orders", {1, 2})
        reports = [each.getMessage() for each in caplog.records if "no connection to the broker" in each.getMessage()]
        assert len(reports) == len(set(reports)) == 2, reports
        assert all("SCRAM-SHA-512" in each and f"{PREFIX}{key}" in each for each in reports), reports
        assert not any("wrong" in each.getMessage() for each in caplog.records)
        world.configure(3, "SCRAM-SHA-512", scram())
        await in_sync(world.cluster, world.client, "orders", {1, 2, 3})

    simulate(tmp_path, settings("SCRAM-SHA-512", scram()), scenario, {"SCRAM-SHA-512": PASSWORD})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_password_of_the_brokers_changes_under_load(tmp_path: Path, mechanism: str) -> None:
    """First all brokers accept the next user, then they use it, then the former one is deleted: no request fails."""
    following = "broker-2"

    async def scenario(world: World) -> None:
        await world.create("orders")
        async with Producer(world.cluster.bootstrap_servers, environment=world.environment()) as producer:
            stop = asyncio.Event()
            sending = asyncio.ensure_future(send_until(stop, producer))
            for step in steps(world):
                for broker_id in (1, 2, 3):
                    step(broker_id)
                    await pass_time(2 * REAUTH_MS / 1000)
            await used(world.cluster, following)
            stop.set()
            sent = await sending
        found = [
            int(value)
            for partition, leader in (await world.client.leaders(1, "orders")).items()
            for value in await world.client.values(leader, "orders", partition)
        ]
        assert sorted(found) == list(range(sent)) and sent > 100
        await in_sync(world.cluster, world.client, "orders", {1, 2, 3})

    def steps(world: World) -> list[Callable[[int], object]]:
        if mechanism == "PLAIN":
            both = {BROKER: PASSWORD, following: "next"}
            return [
                lambda broker_id, text=text: world.configure(broker_id, mechanism, text)
                for text in (plain(**both), plain("next", following, **both), plain("next", following))
            ]
        change_user(world.cluster, user_node(mechanism, "next", following))

        def use(broker_id: int) -> None:
            world.configure(broker_id, mechanism, scram("next", following))

        def forget(broker_id: int) -> None:
            if broker_id == 1:
                change_user(world.cluster, Delete(user_path(BROKER)))

        return [use, forget]

    jaas = plain() if mechanism == "PLAIN" else scram()
    reauth = {f"{PREFIX}{mechanism.lower()}.connections.max.reauth.ms": str(REAUTH_MS)}
    users = {} if mechanism == "PLAIN" else {mechanism: PASSWORD}
    simulate(tmp_path, settings(mechanism, jaas, **reauth), scenario, users)


async def send_until(stop: asyncio.Event, producer: Producer) -> int:
    """Send numbers to all partitions in turn; return how many were acknowledged."""
    sent = 0
    while not stop.is_set():
        await producer.send("orders", b"%d" % sent, partition=sent % PARTITIONS)
        sent += 1
        await pass_time(0.05)
    return sent


WRONG = [
    ({}, "sasl.mechanism.inter.broker.protocol: GSSAPI (Kerberos), the default, is not supported between brokers"),
    ({"sasl.mechanism.inter.broker.protocol": "X"}, "'X' is not supported between brokers; set it to one of PLAIN"),
    ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "sasl.enabled.mechanisms must include SCRAM-SHA-256"),
    ({"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "the brokers have no username to log in to each other"),
]


@pytest.mark.parametrize(("given", "text"), WRONG)
def test_missing_credentials_are_named(given: dict[str, str], text: str) -> None:
    static = {key: str(value) for key, value in settings("PLAIN", plain()).items()}
    del static["sasl.mechanism.inter.broker.protocol"]
    static |= {
        "listeners": "CLIENTS://h:9092,INTERNAL://h:9093",
        "zookeeper.connect": "h:2181",
        f"{PREFIX}plain.sasl.jaas.config": f'{PACKAGE}.plain.PlainLoginModule required user_a="b";',
        **given,
    }
    with pytest.raises(ConfigError) as raised:
        BrokerConfig(static)
    assert text in str(raised.value) and "\n" not in str(raised.value)


def test_credentials_are_in_no_repr() -> None:
    static = {key: str(value) for key, value in settings("PLAIN", plain()).items()}
    config = BrokerConfig({**static, "listeners": "CLIENTS://h:9092,INTERNAL://h:9093", "zookeeper.connect": "h:2181"})
    found = config.broker_credentials()
    assert (found.username, found.password) == (BROKER, PASSWORD) and PASSWORD not in repr(found)
