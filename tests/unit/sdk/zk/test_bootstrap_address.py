"""`bootstrap_servers="zookeeper://..."`: what is valid, and what a client shows of it."""

import pytest
from kafkalite_sdk import Admin, Consumer, Producer
from kafkalite_sdk.client.settings import parse_servers
from kafkalite_sdk.zk.bootstrap import TreeOfBrokers


@pytest.mark.parametrize(
    ("text", "servers", "listener"),
    [
        ("zookeeper://zk:2181", "zk:2181", ""),
        ("zookeeper://zk1:2181,zk2:2182/kafka/test", "zk1:2181,zk2:2182/kafka/test", ""),
        ("zookeeper://[::1]:2181/kafka/?listener=EXTERNAL", "[::1]:2181/kafka", "EXTERNAL"),
        (" zookeeper://zk?listener=SSL ", "zk", "SSL"),
    ],
)
def test_servers_chroot_and_listener(text: str, servers: str, listener: str) -> None:
    assert parse_servers(text) == ((), TreeOfBrokers(servers, listener)) == parse_servers([text])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("zookeeper://", '"" is not host:port'),
        ("zookeeper://zk:0", "the port of zk:0 is 0"),
        ("zookeeper://zk//kafka", "is not the path of a znode"),
        ("zookeeper://zk?listener", "bad query field"),
        ("zookeeper://zk?listner=A", "listner are set, expected at most listener=NAME"),
        ("zookeeper://zk?listener=A&listener=B", "listener, listener are set"),
        ("zookeeper://user:secret@zk:2181", "user names and passwords are no part of an address"),
        ("etcd://host:1", "is not an address"),
    ],
)
def test_wrong_addresses_are_rejected(text: str, words: str) -> None:
    for create in (Producer, Consumer, Admin):
        with pytest.raises(ValueError, match="bootstrap_servers") as caught:
            create(text)
        assert words in str(caught.value) and "secret" not in str(caught.value)


def test_tree_and_addresses_are_not_mixed() -> None:
    with pytest.raises(ValueError, match=r"'zookeeper://zk' is not an address"):
        parse_servers(["zookeeper://zk", "broker:9092"])


def test_clients_show_the_tree() -> None:
    text = "zookeeper://zk:2181/kafka?listener=A"
    assert repr(Producer(text)) == f"<Producer of {text}, not started>"
    assert repr(Consumer(text)) == f"<Consumer of {text}, not started>"
