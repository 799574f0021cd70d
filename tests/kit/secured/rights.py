"""The user of a secured broker, and its ACLs. A broker process with the kit in it does not import this."""

from __future__ import annotations

from kafkalite_sdk import blocking
from kafkalite_sdk.admin import Acl, AclOperation, AclResource, NewCredential, ScramMechanism, UserMechanism

from tests.kit.secured.logins import PASSWORD, USER

ITERATIONS = 4_096
OF_CLUSTER = (
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.IDEMPOTENT_WRITE,
)
NAMED = (AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID)
RIGHTS = (
    *((resource, "*", AclOperation.ALL) for resource in NAMED),
    *((AclResource.CLUSTER, "kafka-cluster", operation) for operation in OF_CLUSTER),
)


def create_user(address: str) -> None:
    """Create both. Raises KafkaError.

    Arguments:
        address: of a listener whose clients are super users.
    """
    with blocking.Admin(address) as admin:
        user = UserMechanism(USER, ScramMechanism.SCRAM_SHA_512)
        admin.users.alter({user: NewCredential(PASSWORD, ITERATIONS)}).check()
        admin.acls.create(*(Acl(kind, name, f"User:{USER}", each) for kind, name, each in RIGHTS)).check()
