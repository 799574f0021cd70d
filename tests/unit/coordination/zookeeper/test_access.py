"""The access control lists of created nodes, and what the log may show of an identity."""

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.zookeeper.access import READABLE_ACL, Access, kafka_acl, open_acl
from kafkalite.coordination.zookeeper.records import CREATOR_ACL, OPEN_ACL, Acl, Id

OWNER = Acl(31, Id("auth", ""))  # READ 1, WRITE 2, CREATE 4, DELETE 8, ADMIN 16 (ZooDefs.Perms)
READER = Acl(1, Id("world", "anyone"))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/brokers", (OWNER, READER)),
        (znodes.topic_path("orders"), (OWNER, READER)),
        (znodes.topic_config_path("orders"), (OWNER, READER)),
        (znodes.CONFIG_CHANGE_PREFIX, (OWNER, READER)),
        ("/controller", (OWNER, READER)),
        ("/kafka/chroot", (OWNER, READER)),
        ("/config", (OWNER, READER)),
        ("/config/brokers", (OWNER,)),
        (znodes.broker_config_path(None), (OWNER,)),
        ("/config/users", (OWNER,)),
        ("/config/users/alice", (OWNER,)),
        ("/delegation_token/tokens/1", (OWNER,)),
        ("/kafkalite/scram_secret", (OWNER,)),
        ("/kafkalite/features", (OWNER, READER)),
        ("/consumers", OPEN_ACL),
        ("/consumers/group", (OWNER, READER)),
    ],
)
def test_lists_are_those_of_kafka(path: str, expected: tuple[Acl, ...]) -> None:
    assert kafka_acl(path) == expected
    assert open_acl(path) == OPEN_ACL
    assert (READABLE_ACL, CREATOR_ACL) == ((OWNER, READER), (OWNER,))


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(Access(digest=b"kafka:secret"))
