"""Nodes of brokers and of the controller: the bytes that Kafka 3.9.2 writes, and garbage is refused.

The bytes were printed by the encoders in ZkData.scala.
"""

import random
from collections.abc import Callable

import pytest

from kafkalite.coordination.znodes import ZnodeError, brokers, controller
from kafkalite.coordination.znodes.brokers import BrokerRegistration, FeatureNode, FeatureRange
from kafkalite.coordination.znodes.controller import ControllerNode
from kafkalite.model import Endpoint, TopicPartition

PLAIN = Endpoint("PLAINTEXT", "h", 9092)
INTERNAL = Endpoint("INTERNAL", "i", 9093, "SASL_SSL")
CLIENT = Endpoint("CLIENT", "::1", 9094)
PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 2))
BROKERS = [
    (
        BrokerRegistration((PLAIN,), 1795537176702),
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
        b'"jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1795537176702"}',
    ),
    (
        BrokerRegistration((PLAIN,), 1795537177257, "r1"),
        b'{"features":{},"listener_security_protocol_map":{"PLAINTEXT":"PLAINTEXT"},"endpoints":["PLAINTEXT://h:9092"],'
        b'"rack":"r1","jmx_port":-1,"port":9092,"host":"h","version":5,"timestamp":"1795537177257"}',
    ),
    (
        BrokerRegistration((INTERNAL, CLIENT), 1795537177261, "r1", {"f": FeatureRange(1, 3)}),
        b'{"features":{"f":{"min_version":1,"max_version":3}},'
        b'"listener_security_protocol_map":{"INTERNAL":"SASL_SSL","CLIENT":"PLAINTEXT"},'
        b'"endpoints":["INTERNAL://i:9093","CLIENT://[::1]:9094"],"rack":"r1","jmx_port":-1,"port":9094,"host":"::1",'
        b'"version":5,"timestamp":"1795537177261"}',
    ),
    (
        BrokerRegistration((INTERNAL,), 1795537177280),
        b'{"features":{},"listener_security_protocol_map":{"INTERNAL":"SASL_SSL"},"endpoints":["INTERNAL://i:9093"],'
        b'"jmx_port":-1,"port":-1,"host":null,"version":5,"timestamp":"1795537177280"}',
    ),
]


@pytest.mark.parametrize(("broker", "data"), BROKERS)
def test_registration_of_a_broker(broker: BrokerRegistration, data: bytes) -> None:
    assert brokers.encode_registration(broker) == data
    assert brokers.decode_registration(1, data) == broker


def test_registrations_of_older_brokers() -> None:
    first = brokers.decode_registration(1, b'{"version":1,"host":"h","port":9092,"jmx_port":9999,"timestamp":"22"}')
    assert first == BrokerRegistration((PLAIN,), 22, jmx_port=9999)
    second = brokers.decode_registration(1, b'{"version":2,"endpoints":["PLAINTEXT://h:9092","SSL://s:9093"]}')
    assert second == BrokerRegistration((PLAIN, Endpoint("SSL", "s", 9093, "SSL")), 0)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (b'{"version":0}', "version"),
        (b'{"version":1,"host":"h","port":70000}', "port"),
        (b'{"version":5,"endpoints":["h:9092"]}', "endpoints"),
        (b'{"version":5,"endpoints":["SSL://h:99999"]}', "endpoints"),
        (b'{"version":5,"endpoints":["OTHER://h:1"]}', "endpoints"),
        (b'{"version":5,"endpoints":["A://h:1"],"listener_security_protocol_map":{"B":"SSL"}}', "listener_security"),
        (b'{"version":5,"endpoints":["SSL://h:1"],"features":{"f":{"min_version":3,"max_version":1}}}', "min_version"),
        (
            b'{"version":5,"endpoints":["SSL://h:1"],"features":{"f":{"min_version":1,"max_version":1e5}}}',
            "max_version",
        ),
        (b'{"version":5,"endpoints":["SSL://h:1"],"rack":7}', "rack"),
    ],
)
def test_registration_with_a_wrong_field(text: bytes, field: str) -> None:
    with pytest.raises(ZnodeError, match=rf"^/brokers/ids/4: the field '{field}"):
        brokers.decode_registration(4, text)


def test_features() -> None:
    data = b'{"features":{"f":{"max_version_level":1}},"version":2,"status":1}'
    assert brokers.encode_features(FeatureNode(True, {"f": 1})) == data
    assert brokers.decode_features(data) == FeatureNode(True, {"f": 1})
    old = b'{"version":1,"status":0,"features":{"f":{"min_version_level":1,"max_version_level":4}}}'
    assert brokers.decode_features(old) == FeatureNode(False, {"f": 4})
    for wrong in (b'{"version":3,"status":1,"features":{}}', b'{"version":2,"status":2,"features":{}}'):
        with pytest.raises(ZnodeError, match=r"^/feature: "):
            brokers.decode_features(wrong)


def test_generated_broker_ids_begin_above_the_configured_ones() -> None:
    assert brokers.generated_broker_id(1, 1000) == 1001


def test_nodes_of_the_controller() -> None:
    node = b'{"version":2,"brokerid":1,"timestamp":"1700000000000","kraftControllerEpoch":-1}'
    assert controller.encode_controller(ControllerNode(1, 1700000000000)) == node
    assert controller.decode_controller(node) == ControllerNode(1, 1700000000000)
    assert controller.decode_controller(b'{"version":1,"brokerid":3,"timestamp":"5"}') == ControllerNode(3, 5)
    assert controller.encode_controller_epoch(7) == b"7"
    assert controller.decode_controller_epoch(b"7") == 7
    assert controller.delete_topic_path("t") == "/admin/delete_topics/t"


def test_requests_and_notifications() -> None:
    partitions = b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":2}]}'
    assert controller.encode_partitions(PARTITIONS) == partitions
    assert controller.decode_partitions("/p", partitions) == PARTITIONS
    reassigned = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2]}]}'
    assert controller.encode_reassignment({PARTITIONS[0]: (1, 2)}) == reassigned
    assert controller.decode_reassignment(reassigned) == {PARTITIONS[0]: (1, 2)}
    assert controller.encode_log_dir_failure(1) == b'{"version":1,"broker":1,"event":1}'
    assert controller.decode_log_dir_event("/e", b'{"version":1,"broker":1,"event":1}') == 1


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: brokers.decode_registration(1, data),
    brokers.decode_features,
    controller.decode_controller,
    controller.decode_controller_epoch,
    controller.decode_reassignment,
    lambda data: controller.decode_partitions("/p", data),
    lambda data: controller.decode_log_dir_event("/e", data),
]
GARBAGE = (b"", b"{", b"[]", b"\xff\xfe", b"{}", b'{"version":1}', b"[" * 100_000, b"99999999999", b"+1", b"0x1")
ENTRIES = (
    b"1",
    b"{}",
    b'{"topic":1,"partition":0}',
    b'{"topic":"t","partition":-1}',
    b'{"topic":"t","partition":true}',
)


@pytest.mark.parametrize("decode", DECODERS)
def test_garbage_is_refused_with_one_line_that_names_the_node(decode: Callable[[bytes], object]) -> None:
    for data in GARBAGE:
        with pytest.raises(ZnodeError, match=r"^/[^\n]*$"):
            decode(data)


@pytest.mark.parametrize("entry", ENTRIES)
def test_wrong_partition_is_refused(entry: bytes) -> None:
    data = b'{"version":1,"partitions":[' + entry + b"]}"
    with pytest.raises(ZnodeError, match=r"^/p: "):
        controller.decode_partitions("/p", data)
    with pytest.raises(ZnodeError, match=r"^/admin/reassign_partitions: "):
        controller.decode_reassignment(data)


@pytest.mark.fuzz
def test_changed_nodes_are_read_or_refused(chance: random.Random, fuzz_inputs: int) -> None:
    good = [data for _, data in BROKERS]
    outcomes = {True: 0, False: 0}
    for _ in range(max(500, fuzz_inputs // 100)):
        data = bytearray(chance.choice(good))
        data[chance.randrange(len(data))] = chance.choice(b'0"[]{}:,-truen9')
        try:
            brokers.decode_registration(1, bytes(data))
            outcomes[True] += 1
        except ZnodeError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 20
