"""The text of zookeeper.connect."""

import pytest

from kafkalite.coordination.zookeeper.address import Address, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:2181", Address((("localhost", 2181),), "")),
        ("zk1,zk2:2182", Address((("zk1", 2181), ("zk2", 2182)), "")),
        ("zk1:1, zk2:2/kafka/one", Address((("zk1", 1), ("zk2", 2)), "/kafka/one")),
        ("[::1]:2182,[fe80::1%eth0]/", Address((("::1", 2182), ("fe80::1%eth0", 2181)), "")),
    ],
)
def test_servers_and_chroot(text: str, expected: Address) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", '"" is not host:port'),
        ("zk1:2181,", '"" is not host:port'),
        ("zk1:http", '"zk1:http" is not host:port'),
        ("::1", '"::1" is not host:port'),
        ("zk1:0", "port of zk1:0 is 0"),
        ("zk1:65536", "port of zk1:65536 is 65536"),
        ("zk1:2181/kafka/", '"/kafka/" is not the path'),
        ("zk1:2181//kafka", '"//kafka" is not the path'),
    ],
)
def test_invalid_text_names_its_wrong_part(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="is") as caught:
        parse_address(text)
    assert named in str(caught.value)
