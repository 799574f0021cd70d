"""A pytest plugin for aiokafka's own tests of SASL and TLS, on the broker of `listeners`.

It takes the place of their classes that change ACLs and users with Kafka's tools in a container.
"""

import os
from pathlib import Path
from typing import Any

import pytest
from kafkalite_sdk import blocking
from kafkalite_sdk.admin import (
    Acl,
    AclFilter,
    AclOperation,
    AclResource,
    NewCredential,
    Permission,
    ScramMechanism,
    UserMechanism,
)

from tests.suites.listeners import CERTIFICATES, SASL_PORT, TLS_PORT

ADDRESS = os.environ["KAFKALITE_SUITE_ADDRESS"]
ITERATIONS = 4_096


class AclManager:
    """ACLs of users, added by the tests one by one and removed together."""

    def list_acl(self) -> object:
        with blocking.Admin(ADDRESS) as admin:
            return admin.acls.list()

    def add_acl(
        self,
        operation: str,
        allow_principal: str | None = None,
        deny_principal: str | None = None,
        cluster: bool = False,
        **resource: str,
    ) -> None:
        kind, name = ("cluster", "kafka-cluster") if cluster else resource.popitem()
        principal = f"User:{allow_principal or deny_principal}"
        permission = Permission.ALLOW if allow_principal else Permission.DENY
        acl = Acl(AclResource[kind.upper()], name, principal, AclOperation[operation.upper()], permission)
        with blocking.Admin(ADDRESS) as admin:
            admin.acls.create(acl).check()

    def cleanup(self) -> None:
        with blocking.Admin(ADDRESS) as admin:
            admin.acls.delete(AclFilter()).check()


class KafkaConfig:
    """Users for SCRAM."""

    def add_scram_user(self, username: str, password: str) -> None:
        user = UserMechanism(username, ScramMechanism.SCRAM_SHA_256)
        with blocking.Admin(ADDRESS) as admin:
            admin.users.alter({user: NewCredential(password, ITERATIONS)}).check()


@pytest.fixture(scope="class", autouse=True)
def security(request: pytest.FixtureRequest) -> None:
    """The listeners, for the tests in classes."""
    cls: Any = request.cls
    if cls is not None:
        cls.kafka_ssl_port, cls.kafka_sasl_plain_port = int(os.environ[TLS_PORT]), int(os.environ[SASL_PORT])
        cls.ssl_folder = Path(os.environ[CERTIFICATES])
        cls.acl_manager, cls.kafka_config = AclManager(), KafkaConfig()
