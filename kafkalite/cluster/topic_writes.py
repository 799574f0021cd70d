"""Writes the nodes of topics in a cluster: any broker creates topics, adds partitions, requests deletions, sets
configs.

The controller watches these nodes: it writes the partition states, and deletes the nodes of deleted topics.

1. A topic's node and its config node are created in one transaction. A config node that is left without a topic is
   replaced: it belonged to a topic that was created half, or deleted half.
2. After a lost connection the node is read back: a topic is created if it has the new topic id.
3. Added partitions are written only to the version of the node that was read. Their number is checked again there.
4. A change of configs creates a notification, in the same transaction. Every broker watches the notifications.

Sources: AdminZkClient.scala, KafkaZkClient.scala of Apache Kafka 3.9, which makes each write by itself.
"""

from collections.abc import Callable, Mapping
from functools import partial
from urllib.parse import quote

from kafkalite.clock import Outcome
from kafkalite.cluster.image import TopicImage
from kafkalite.cluster.metadata_store import answered, code_of
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import ConnectionLossError, NodeExistsError, NoNodeError
from kafkalite.coordination.tree import Create, Delete, Operation, Set
from kafkalite.coordination.znodes.controller import delete_topic_path
from kafkalite.errors import ErrorWithReason, KafkaErrorCode

NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes connections with requests above 1 MiB (jute.maxbuffer)
FAILED = KafkaErrorCode.UNKNOWN_SERVER_ERROR

Done = Callable[[int], None]


class TopicWriter:
    """The writes of one session; `then` of each is called once with 0 or a Kafka error code.

    Arguments:
        session: with the coordination service.
    """

    def __init__(self, session: Coordination) -> None:
        self._session = session

    def create_topic(self, topic: TopicImage, then: Done) -> None:
        """Create a topic without partition states; TOPIC_ALREADY_EXISTS if its node exists."""
        data = znodes.encode_topic(znodes.TopicNode(topic.topic_id, replicas_of(topic)))
        if len(data) > NODE_BYTES_MAX:
            then(too_large(len(topic.partitions)))
            return
        path, configs = znodes.topic_config_path(topic.name), znodes.encode_configs(topic.configs)
        node = Create(znodes.topic_path(topic.name), data)

        def made(outcome: Outcome) -> None:
            error = outcome.error
            if isinstance(error, NodeExistsError) and error.at == 0:
                self._session.multi((Set(path, configs), node), ended)
            else:
                ended(outcome)

        def ended(outcome: Outcome) -> None:
            error = outcome.error
            if isinstance(error, ConnectionLossError):
                self._session.get(node.path, read_back)
            elif isinstance(error, NoNodeError):  # the config node is gone again
                self.create_topic(topic, then)
            else:
                answered(then, KafkaErrorCode.TOPIC_ALREADY_EXISTS)(outcome)

        def read_back(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):
                then(unknown_result())
            elif outcome.error is not None:
                answered(then)(outcome)
            else:
                then(0 if outcome.value[0] == data else KafkaErrorCode.TOPIC_ALREADY_EXISTS)

        self._session.multi((Create(path, configs), node), made)

    def add_partitions(self, topic: TopicImage, then: Done) -> None:
        """Write a topic with more partitions than its node has. INVALID_PARTITIONS if it has them already.

        Arguments:
            topic: with all partitions; those that the node has keep the replicas in the node.
            then: see the class.
        """
        path, wanted = znodes.topic_path(topic.name), replicas_of(topic)

        def read(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(code_of(outcome.error))
                return
            data, stat = outcome.value
            try:
                node = znodes.decode_topic(path, data)
            except znodes.ZnodeError as error:
                then(ErrorWithReason(FAILED, str(error)))
                return
            if len(node.replicas) >= len(wanted):
                text = f"The topic currently has {len(node.replicas)} partition(s), another request has added some"
                then(ErrorWithReason(KafkaErrorCode.INVALID_PARTITIONS, text))
                return
            grown = znodes.encode_topic(node._replace(replicas={**wanted, **node.replicas}))
            if len(grown) > NODE_BYTES_MAX:
                then(too_large(len(wanted)))
            else:
                self._session.set(path, grown, partial(self._added, topic, len(wanted), then), stat.version)

        self._session.get(path, read)

    def _added(self, topic: TopicImage, count: int, then: Done, outcome: Outcome) -> None:
        if not isinstance(outcome.error, ConnectionLossError):
            answered(then)(outcome)
            return

        def read_back(again: Outcome) -> None:
            if again.error is not None:
                then(code_of(again.error))
                return
            try:
                node = znodes.decode_topic(znodes.topic_path(topic.name), again.value[0])
            except znodes.ZnodeError as error:
                then(ErrorWithReason(FAILED, str(error)))
                return
            then(0 if len(node.replicas) == count else unknown_result())

        self._session.get(znodes.topic_path(topic.name), read_back)

    def request_deletion(self, name: str, then: Done) -> None:
        """Ask the controller to delete a topic; also if that was asked before."""
        path = delete_topic_path(name)

        def made(outcome: Outcome) -> None:
            if isinstance(outcome.error, NodeExistsError):
                then(0)
            elif isinstance(outcome.error, ConnectionLossError):
                self._session.exists(path, read_back)
            else:
                answered(then)(outcome)

        def read_back(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(code_of(outcome.error))
            else:
                then(unknown_result() if outcome.value is None else 0)

        self._session.create(path, b"", made)

    # Configs.

    def read_configs(self, name: str, then: Callable[[Outcome], object]) -> None:
        """Read the configs of a topic; none if it has no config node. `then` is called with the outcome."""
        read_configs(self._session, znodes.topic_config_path(name), then)

    def configure_topic(self, name: str, configs: Mapping[str, str], then: Done) -> None:
        """Replace the configs of a topic."""
        self._configure(znodes.topic_config_path(name), f"topics/{quote(name, safe='')}", configs, then)

    def configure_broker(self, broker_id: int | None, configs: Mapping[str, str], then: Done) -> None:
        """Replace the dynamic configs of a broker, or of all brokers (None)."""
        path = znodes.broker_config_path(broker_id)
        self._configure(path, path.removeprefix("/config/"), configs, then)

    def configure_group(self, group: str, configs: Mapping[str, str], then: Done) -> None:
        """Replace the configs of a group, which need not exist; an empty mapping deletes them."""
        path = znodes.group_config_path(group)
        entity = path.removeprefix("/kafkalite/")
        if configs:
            self._configure(path, entity, configs, then, znodes.GROUP_CHANGES)
            return

        def gone(outcome: Outcome) -> None:
            absent = isinstance(outcome.error, NoNodeError) and outcome.error.at == 0
            answered(then)(Outcome() if absent else outcome)

        self._session.multi((Delete(path), notice_of(entity, znodes.GROUP_CHANGES)), gone)

    def _configure(
        self, path: str, entity: str, configs: Mapping[str, str], then: Done, changes: str = znodes.CONFIG_CHANGES
    ) -> None:
        data = znodes.encode_configs(configs)
        if len(data) > NODE_BYTES_MAX:
            text = f"The configs have {len(data)} bytes, allowed are {NODE_BYTES_MAX}"
            then(ErrorWithReason(KafkaErrorCode.INVALID_CONFIG, text))
            return
        notice = notice_of(entity, changes)

        def written(other: Operation | None, outcome: Outcome) -> None:
            error = outcome.error
            if other is not None and isinstance(error, (NoNodeError, NodeExistsError)) and error.at == 0:
                self._session.multi((other, notice), partial(written, None))
            else:
                answered(then)(outcome)

        self._session.multi((Set(path, data), notice), partial(written, Create(path, data)))


def notice_of(entity: str, changes: str) -> Create:
    """The notification of a change, below the node `changes`."""
    return Create(f"{changes}/{znodes.CONFIG_CHANGE}", znodes.encode_config_change(entity), sequence=True)


def read_configs(session: Coordination, path: str, then: Callable[[Outcome], object]) -> None:
    """Read a config node; `then` is called with the texts by key, or with an error, ZnodeError included."""

    def read(outcome: Outcome) -> None:
        if isinstance(outcome.error, NoNodeError):
            then(Outcome({}))
        elif outcome.error is not None:
            then(outcome)
        else:
            try:
                found = Outcome(znodes.decode_configs(path, outcome.value[0]))
            except znodes.ZnodeError as error:
                found = Outcome(error=error)
            then(found)

    session.get(path, read)


def replicas_of(topic: TopicImage) -> dict[int, tuple[int, ...]]:
    """The assignment of a topic's partitions."""
    return {index: partition.replicas for index, partition in enumerate(topic.partitions)}


def too_large(partitions: int) -> ErrorWithReason:
    """The error of a topic whose node would be too large."""
    text = f"The node of a topic with {partitions} partitions has more than {NODE_BYTES_MAX} bytes"
    return ErrorWithReason(KafkaErrorCode.INVALID_PARTITIONS, text)


def unknown_result() -> ErrorWithReason:
    """The error of a write that had no response and was not made."""
    text = "The connection to the coordination service was lost, and nothing was changed: try again"
    return ErrorWithReason(KafkaErrorCode.REQUEST_TIMED_OUT, text)
