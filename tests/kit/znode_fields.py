"""Every field of every znode with values that are out of its range, one at a time.

The nodes are those that the encoders write, so that a new field has its cases without a change here;
`test_znode_ranges` checks that no encoder is missing.
"""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kafkalite.coordination import znodes
from kafkalite.coordination.znodes import brokers, controller
from kafkalite.model import Endpoint, TopicPartition

TOPIC, BROKER_ID, TOPIC_ID = "odd", 77, bytes(range(16))
KEY = TopicPartition(TOPIC, 0)
NUMBERS = (-(2**31) - 1, -2, 2**31 - 1, 2**31, 99_999_999_999, 2**63, 1.5)
VALUES: tuple[Any, ...] = (
    *NUMBERS,
    None,
    True,
    "",
    "\ud800",
    "x" * 40_000,
    [],
    [[]],
    {},
    {"200000": [1]},
    [1, 1],
    [-1],
)


class Node(NamedTuple):
    """A node as an encoder writes it, and its decoder."""

    path: str
    encoder: Callable[..., bytes]
    data: bytes
    decode: Callable[[bytes], object]


class Case(NamedTuple):
    """A node with one field that has another value."""

    node: Node
    field: str
    data: bytes


def nodes() -> list[Node]:
    """One node of each type whose contents are JSON."""
    return common_nodes() + controller_nodes()


def common_nodes() -> list[Node]:
    """Nodes that brokers read as well."""
    endpoint = Endpoint("PLAINTEXT", "elsewhere", 9092)
    registration = brokers.BrokerRegistration((endpoint,), 1, "rack", {"f": brokers.FeatureRange(1, 2)}, 9999)
    topic = znodes.TopicNode(TOPIC_ID, {0: (1, 2)}, {0: (2,)}, {0: (1,)})
    state = znodes.PartitionState(1, 3, (1, 2), 1, True, (3, -1), (3,), (5,))
    topic_path, state_path = znodes.topic_path(TOPIC), znodes.state_path(TOPIC, 0)
    change, directory = f"{znodes.CONFIG_CHANGE_PREFIX}9999999999", znodes.directory_path(TOPIC_ID, 0)
    registered = brokers.registration_path(BROKER_ID)
    return [
        Node(znodes.CLUSTER_ID, znodes.encode_cluster_id, znodes.encode_cluster_id("c"), znodes.decode_cluster_id),
        Node(topic_path, znodes.encode_topic, znodes.encode_topic(topic), lambda d: znodes.decode_topic(topic_path, d)),
        Node(state_path, znodes.encode_state, znodes.encode_state(state), lambda d: znodes.decode_state(state_path, d)),
        *(
            Node(path, znodes.encode_configs, znodes.encode_configs({"retention.ms": "1"}), config_decoder(path))
            for path in (znodes.topic_config_path(TOPIC), znodes.broker_config_path(BROKER_ID))
        ),
        Node(
            change,
            znodes.encode_config_change,
            znodes.encode_config_change("topics/odd"),
            lambda d: znodes.decode_config_change(change, d),
        ),
        Node(
            znodes.PRODUCER_ID_BLOCK,
            znodes.encode_producer_ids,
            znodes.encode_producer_ids(znodes.ProducerIdBlock(1, 0, 999)),
            lambda d: znodes.decode_producer_ids(d) or d,
        ),
        Node(
            directory,
            znodes.encode_directory,
            znodes.encode_directory(1, "d"),
            lambda d: znodes.decode_directory(directory, d),
        ),
        Node(
            registered,
            brokers.encode_registration,
            brokers.encode_registration(registration),
            lambda d: brokers.decode_registration(BROKER_ID, d),
        ),
    ]


def controller_nodes() -> list[Node]:
    """Nodes that only the controller reads."""
    event, isr = f"{controller.LOG_DIR_EVENT_PREFIX}9999999999", f"{controller.ISR_CHANGE_PREFIX}9999999999"
    return [
        Node(
            brokers.FEATURE,
            brokers.encode_features,
            brokers.encode_features(brokers.FeatureNode(True, {"f": 1})),
            brokers.decode_features,
        ),
        Node(
            controller.CONTROLLER,
            controller.encode_controller,
            controller.encode_controller(controller.ControllerNode(1, 1)),
            controller.decode_controller,
        ),
        Node(
            controller.REASSIGN_PARTITIONS,
            controller.encode_reassignment,
            controller.encode_reassignment({KEY: (1, 2)}),
            controller.decode_reassignment,
        ),
        *(
            Node(path, controller.encode_partitions, controller.encode_partitions([KEY]), partitions_decoder(path))
            for path in (controller.PREFERRED_ELECTION, isr)
        ),
        Node(
            event,
            controller.encode_log_dir_failure,
            controller.encode_log_dir_failure(1),
            lambda d: controller.decode_log_dir_event(event, d),
        ),
    ]


def config_decoder(path: str) -> Callable[[bytes], object]:
    """Decodes the configs at a path."""
    return lambda data: znodes.decode_configs(path, data)


def partitions_decoder(path: str) -> Callable[[bytes], object]:
    """Decodes the partitions at a path."""
    return lambda data: controller.decode_partitions(path, data)


def cases(node: Node) -> Iterator[Case]:
    """The node with each field, at each depth, missing or of each other value."""
    fields = json.loads(node.data)
    for where in keys_of(fields):
        name = ".".join(map(str, where))
        yield Case(node, f"{name} missing", json.dumps(changed(fields, where)).encode())
        for value in VALUES:
            yield Case(node, f"{name} = {str(value)[:20]!a}", json.dumps(changed(fields, where, value)).encode())
            yield Case(node, f"{name} = text of it", json.dumps(changed(fields, where, str(value))).encode())


def keys_of(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each field and each entry of a list."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, entry in items:
        yield (*above, key)
        yield from keys_of(entry, (*above, key))


def changed(fields: Any, where: tuple[Any, ...], *value: Any) -> Any:
    """A copy with one other value, or without it."""
    copied = copy.deepcopy(fields)
    target = copied
    for key in where[:-1]:
        target = target[key]
    if value:
        target[where[-1]] = value[0]
    else:
        del target[where[-1]]
    return copied
