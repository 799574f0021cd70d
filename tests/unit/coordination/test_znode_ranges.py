"""No field of a node has a value that Kafka's protocol does not have: it is rejected where it is read."""

from __future__ import annotations

import pytest

from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import ZnodeError, brokers, controller
from kafkalite.model import uuid_text
from tests.kit.znode_fields import Node, cases, nodes

NO_JSON = {"encode_controller_epoch"}
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
TEXT_NODES = ("encode_configs", "encode_directory")  # `config` validates keys; of directories only existence counts


def test_every_encoder_has_a_node() -> None:
    encoders = {name for module in (znodes, brokers, controller) for name in vars(module) if name.startswith("encode_")}
    assert encoders - NO_JSON == {each.encoder.__name__ for each in nodes()}


@pytest.mark.parametrize("node", nodes(), ids=lambda node: node.path)
def test_what_is_read_has_values_of_the_protocol(node: Node) -> None:
    node.decode(node.data)
    for case in cases(node):
        try:
            found = node.decode(case.data)
        except ZnodeError as error:
            assert str(error).startswith(f"{node.path}: "), case.field
            assert "\n" not in str(error), case.field
        else:
            check(found, case.field, texts=node.encoder.__name__ not in TEXT_NODES)


def check(value: object, field: str, *, texts: bool) -> None:
    """Check that every value fits in the protocol."""
    if isinstance(value, dict):
        for each in (*value.keys(), *value.values()):
            check(each, field, texts=texts)
    elif isinstance(value, tuple | list):
        for each in value:
            check(each, field, texts=texts)
    elif isinstance(value, str):
        assert not texts or len(value.encode()) < 2**15, field
    elif isinstance(value, int):
        bound = INT64_MAX if any(each in field for each in ("timestamp", "block", "_epochs")) else INT32_MAX
        assert -bound - 1 <= value <= bound, field


@pytest.mark.parametrize(
    "fields",
    [
        '"topic_id":"AAAAAAAAAAAAAAAAAAAAAA","partitions":{"0":[1]}',
        '"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1]}',
        '"partitions":{"100000":[1]}',
        '"partitions":{"0":[1],"00":[1]}',
        '"partitions":{"0":[]}',
        '"partitions":{"0":[1,1]}',
        '"partitions":{"0":[2147483648]}',
    ],
)
def test_topic_that_brokers_would_reject_is_invalid(fields: str) -> None:
    with pytest.raises(ZnodeError, match=r"^/t: the field '(topic_id|partitions)'"):
        znodes.decode_topic("/t", f'{{"version":3,{fields}}}'.encode())


def test_topic_with_an_id_and_the_largest_partition_is_valid() -> None:
    data = f'{{"version":3,"topic_id":"{uuid_text(bytes(15) + bytes([2]))}","partitions":{{"99999":[2147483647]}}}}'
    assert znodes.decode_topic("/t", data.encode()).replicas == {99_999: (INT32_MAX,)}


@pytest.mark.parametrize(
    "endpoints", ["[]", '["PLAINTEXT://:9092"]', '["PLAINTEXT://h:0"]', '["PLAINTEXT://h:65536"]', '["PLAINTEXT://h"]']
)
def test_broker_that_cannot_be_reached_is_invalid(endpoints: str) -> None:
    with pytest.raises(ZnodeError, match=r"^/brokers/ids/7: the field 'endpoints'"):
        brokers.decode_registration(7, f'{{"version":5,"endpoints":{endpoints}}}'.encode())


@pytest.mark.parametrize(
    ("leader", "epoch", "isr"), [(3, 0, [1, 2]), (-2, 0, [1]), (1, -1, [1]), (1, INT32_MAX, [1]), (1, 0, [1, 1])]
)
def test_state_that_no_election_writes_is_invalid(leader: int, epoch: int, isr: list[int]) -> None:
    data = f'{{"version":1,"leader":{leader},"leader_epoch":{epoch},"controller_epoch":1,"isr":{isr}}}'
    with pytest.raises(ZnodeError, match=r"^/s: the field"):
        znodes.decode_state("/s", data.encode())
