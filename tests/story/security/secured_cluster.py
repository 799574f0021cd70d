"""Three brokers in threads, with SASL_SSL for clients and between brokers, SCRAM users and ACLs."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

from kafkalite_sdk.blocking import Admin

from kafkalite.cli.user.offline import Tree, add_user
from kafkalite.config.keys import SettingValue
from kafkalite.testing.broker_cluster import HOST, BrokerCluster
from tests.kit.certificates import Authority
from tests.story.server.test_tls_listeners import reloaded

MECHANISM = "SCRAM-SHA-512"
BROKER, ADMIN = "broker", "admin"
PASSWORDS = {BROKER: "of the brokers", ADMIN: "of the administrator", "alice": "of alice"}
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS_KEY = f"listener.name.internal.{MECHANISM.lower()}.sasl.jaas.config"
REAUTH_MS = 2_000
OPEN_S = 10.0


def settings(authority: Authority) -> dict[str, SettingValue]:
    """The configs that all brokers have in common."""
    return {
        "zookeeper.session.timeout.ms": 60_000,  # sessions end by `expire`
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,INTERNAL:SASL_SSL",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        JAAS_KEY: jaas(BROKER),
        f"listener.name.internal.{MECHANISM.lower()}.connections.max.reauth.ms": REAUTH_MS,
        "ssl.keystore.type": "PEM",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.cert),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{BROKER};User:{ADMIN};User:{BROKER}-2",
        "replica.lag.time.max.ms": 3_000,
    }


def jaas(user: str) -> str:
    """The login module of the brokers."""
    return f'{MODULE} required username="{user}" password="{password_of(user)}";'


def password_of(user: str) -> str:
    """The password of a user; that of a second user differs."""
    first = user.removesuffix("-2")
    return PASSWORDS[first] if first == user else f"{PASSWORDS[first]}, changed"


class SecuredCluster(BrokerCluster):
    """A `BrokerCluster` whose users are in the tree before the first broker starts.

    Arguments:
        directory: for certificates.

    Attributes:
        authority: has signed all certificates.
        user: of the brokers that start from now on.
    """

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.user = BROKER
        super().__init__(3, settings(self.authority))
        for broker_id in self.broker_ids:
            self.issue(broker_id, "first")

    def issue(self, broker_id: int, name: str) -> None:
        """Replace the certificate of a broker."""
        shutil.copy(self.authority.issue(f"{name}-{broker_id}").bundle(), self.store(broker_id))

    def store(self, broker_id: int) -> Path:
        """The file with the certificate of a broker."""
        return self.authority.folder / f"broker-{broker_id}.pem"

    def start(self, broker_id: int) -> None:
        if not os.path.exists(self.log_directory(1)):
            for user in PASSWORDS:
                tree = Tree(self.zookeeper_connect, None, None, None, OPEN_S)
                asyncio.run(add_user(tree, user, password_of(user), (MECHANISM,), 4096))
        super().start(broker_id)

    def options(self, user: str) -> dict[str, Any]:
        """The settings of a client that logs in as this user."""
        return {
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority.cert,
            "sasl_mechanism": MECHANISM,
            "sasl_username": user,
            "sasl_password": password_of(user),
        }

    def admin(self) -> Admin:
        """A client of the administrator."""
        return Admin(self.bootstrap_servers, **self.options(ADMIN))

    def in_sync(self, topic: str) -> None:
        """Wait until all replicas of a topic on running brokers are in sync."""
        expected = set(self.running)

        def reached() -> bool | None:
            states = [state for each in self._images().values() for state in each.topics[topic].partitions]
            return all(set(each.isr) == expected for each in states) or None

        self._wait(f"the replicas {expected} of {topic} are in sync", reached)

    def connections(self, broker_id: int, listener: str = "INTERNAL") -> list[Any]:
        """The connections of a listener of a broker."""
        drivers: Any = self._threads[broker_id].running.listening._drivers
        return list(drivers[listener].reactor.connections())

    def reload_certificates(self) -> None:
        """Let the brokers compare their files now, and wait until the job has ended."""
        for broker_id in self.running:
            thread = self._threads[broker_id]
            thread.run(reloaded(thread.broker))

    def _admin(self) -> Admin:
        return self.admin()

    def _broker_settings(self, broker_id: int) -> dict[str, SettingValue]:
        return {
            **super()._broker_settings(broker_id),
            "listeners": f"CLIENTS://{self.address(broker_id)},INTERNAL://{HOST}:0",
            "ssl.keystore.location": str(self.store(broker_id)),
            JAAS_KEY: jaas(self.user),
        }
