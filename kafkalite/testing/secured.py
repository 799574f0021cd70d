"""Runs a broker with TLS, users and ACLs in its own thread.

    with SecuredBroker(tls=True, users={"alice": "secret"}, acls=[("alice", "write", "topic", "orders")]) as broker:
        producer = Producer(broker.address, **broker.client_settings("alice"))

1. Clients connect to one listener: SSL, SASL_PLAINTEXT or SASL_SSL. Users log in by one mechanism.
2. With `acls`, also an empty list, requests are authorised. Without users each client is `ANONYMOUS`.
3. TLS needs the package `cryptography` (`pip install 'kafkalite[security]'`). The authority of a broker is its own.
"""

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from kafkalite.cluster.changes import Refusal
from kafkalite.config.jaas import MODULES
from kafkalite.config.keys import SettingValue
from kafkalite.net.authority import Authority
from kafkalite.net.sasl.scram import HASHES
from kafkalite.server.broker import Broker
from kafkalite.state.authorizer.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclBinding,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.testing.loop_thread import DEADLINE_S
from kafkalite.testing.scram_users import store_users
from kafkalite.testing.thread import BrokerThread

HOST = "127.0.0.1"
NAMES = (HOST, "localhost")
DAYS = 2
PLAIN = "PLAIN"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AclText = tuple[str, str, str, str]
"""User, operation, resource type and name, such as ("alice", "write", "topic", "orders"); `orders-*` is a prefix."""


class SecuredBroker(BrokerThread):
    """Runs a broker with security between `__enter__` and `__exit__`.

    Arguments:
        data_dir: log directory; None = a temporary directory, removed at the end.
        settings: further configs under Kafka's names.
        tls: the listener has TLS.
        users: passwords by name; None = without authentication.
        mechanism: of their logins: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.
        acls: what is allowed; None = every request is.

    Raises (from `__enter__`): ValueError for an ACL, a user or a mechanism that is not valid, or without
    `cryptography`.
    """

    def __init__(
        self,
        data_dir: str | None = None,
        settings: Mapping[str, SettingValue] | None = None,
        *,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
        mechanism: str = PLAIN,
        acls: Iterable[AclText] | None = None,
    ) -> None:
        super().__init__(data_dir, settings)
        self._tls = tls
        self._users = dict(users or {})
        self._mechanism = mechanism
        self._acls = None if acls is None else list(acls)
        self._directory: str | None = None

    def client_settings(self, user: str | None = None) -> dict[str, Any]:
        """Return the settings of a client of `kafkalite_sdk`.

        Arguments:
            user: that logs in; None = the first one.

        Raises ValueError: there is no such user.
        """
        settings: dict[str, Any] = {"security_protocol": self._protocol}
        if self._tls:
            settings["ssl_cafile"] = self.authority
        if self._users:
            name = next(iter(self._users)) if user is None else user
            if name not in self._users:
                raise ValueError(f"the broker has no user {name!r}; its users are {', '.join(self._users)}")
            settings |= {"sasl_mechanism": self._mechanism, "sasl_username": name, "sasl_password": self._users[name]}
        elif user is not None:
            raise ValueError(f"the broker has no user {user!r}: give `users` to log in")
        return settings

    @property
    def authority(self) -> str:
        """The path of a PEM file with the authority that has signed the broker's certificate."""
        assert self._directory is not None, "the broker has no TLS, or does not run"
        return os.path.join(self._directory, "ca.pem")

    def allow(self, user: str, *operations: str, **resources: str) -> None:
        """Allow operations.

        Arguments:
            user: its name; `*` = all.
            operations: such as "read", "describe-configs" or "all".
            resources: names by type: topic="orders", group="billing-*", transactional_id="*", cluster="".

        Raises ValueError: an operation or a type does not exist, or the broker refuses the ACL.
        """
        self._add(user, operations, resources, PermissionType.ALLOW)

    def deny(self, user: str, *operations: str, **resources: str) -> None:
        """Deny operations, which wins over everything that is allowed; arguments and errors are those of `allow`."""
        self._add(user, operations, resources, PermissionType.DENY)

    def _add(
        self, user: str, operations: Iterable[str], resources: Mapping[str, str], permission: PermissionType
    ) -> None:
        bindings = [
            acl_binding((user, operation, resource_type, name), permission)
            for operation in operations
            for resource_type, name in resources.items()
        ]
        stored: Future[list[Refusal | None]] = Future()
        assert self._loop is not None, "the broker runs between __enter__ and __exit__"
        self._loop.call_soon_threadsafe(self._store, bindings, stored)
        for binding, refusal in zip(bindings, stored.result(DEADLINE_S), strict=True):
            if refusal is not None:
                raise ValueError(f"{binding} was not stored: {refusal.message or refusal.error}")

    def _store(self, bindings: list[AclBinding], stored: "Future[list[Refusal | None]]") -> None:
        authorizer = self.broker.running.authorizer
        if authorizer is None or authorizer.acls is None:
            stored.set_exception(ValueError("the broker has no authorizer: give `acls`"))
            return
        for _ in authorizer.acls.create(bindings, stored.set_result):
            pass

    @property
    def _protocol(self) -> str:
        return f"SASL_{'SSL' if self._tls else 'PLAINTEXT'}" if self._users else "SSL" if self._tls else "PLAINTEXT"

    async def _start(self) -> Broker:
        bindings = [acl_binding(each, PermissionType.ALLOW) for each in self._acls or ()]
        broker = await super()._start()
        if self._users and self._mechanism in HASHES:
            await store_users(broker.running, self._mechanism, self._users)
        if bindings:
            stored: Future[list[Refusal | None]] = Future()
            authorizer = broker.running.authorizer
            assert authorizer is not None and authorizer.acls is not None
            for _ in authorizer.acls.create(bindings, stored.set_result):
                pass
        return broker

    def _create(self) -> Broker:
        return Broker(self._data_dir, {**(self._settings or {}), **self._security()})

    def _security(self) -> dict[str, str]:
        """The settings of the broker."""
        protocol = self._protocol
        settings = {"listeners": f"{protocol}://{HOST}:0", "security.inter.broker.protocol": protocol}
        if self._users:
            settings |= {"sasl.enabled.mechanisms": self._mechanism}
        if self._users and self._mechanism == PLAIN:
            users = " ".join(f'user_{name}="{_escaped(password)}"' for name, password in self._users.items())
            settings[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"] = f"{MODULES[PLAIN]} required {users};"
        if self._acls is not None:
            settings["authorizer.class.name"] = AUTHORIZER
        return settings | self._certificates() if self._tls else settings

    def _certificates(self) -> dict[str, str]:
        """The settings of TLS; the authority becomes a file."""
        authority = Authority("kafkalite tests", DAYS)
        issued = authority.issue("broker", NAMES, DAYS)
        self._directory = tempfile.mkdtemp(prefix="kafkalite-tls-")
        with open(self.authority, "w") as file:
            file.write(authority.issued.certificate)
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": issued.key,
            "ssl.keystore.certificate.chain": issued.certificate,
        }

    def close(self) -> None:
        """Stop the broker, wait for its thread and remove the file of the authority; raises TimeoutError."""
        super().close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)


def _escaped(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def acl_binding(text: AclText, permission: PermissionType) -> AclBinding:
    """Return an ACL of a user from all hosts. Raises ValueError.

    Arguments:
        text: the user, the operation, the resource type and the name; `orders-*` is a prefix, `*` all names.
        permission: allow or deny.
    """
    user, operation, resource_type, name = text
    principal = user if ":" in user else f"User:{user}"
    prefixed = name.endswith(WILDCARD) and name != WILDCARD
    codes = {}
    for given, known in ((operation, AclOperation), (resource_type, AclResourceType)):
        try:
            codes[given] = known[given.upper().replace("-", "_")]
        except KeyError:
            names = ", ".join(each.name.lower() for each in known if each > 1)
            raise ValueError(f"{text}: {given!r} does not exist; use {names}") from None
    kind: Any = codes[resource_type]
    target = CLUSTER_NAME if kind is AclResourceType.CLUSTER else name.removesuffix(WILDCARD) if prefixed else name
    pattern = ResourcePattern(kind, target, PatternType.PREFIXED if prefixed else PatternType.LITERAL)
    allowed: Any = codes[operation]
    return AclBinding(pattern, Acl(principal, WILDCARD, allowed, permission))
