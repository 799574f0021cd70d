"""Writes the nodes of topics in a cluster: any broker creates topics, adds partitions, requests deletions.

The controller watches these nodes: it writes the partition states, and deletes the nodes of deleted topics.

1. A topic's node and its config node are created in one transaction. A config node that is left without a topic is
   replaced: it belonged to a topic that was created half, or deleted half.
2. After a lost connection the node is read back: a topic is created if it has the new topic id.
3. Added partitions are written only to the version of the node that was read; if another broker has changed it, it is
   read again. Their number is checked again there.

Sources: AdminZkClient.scala, KafkaZkClient.scala of Apache Kafka 3.9, which makes each write by itself.
"""

from collections.abc import Callable
from functools import partial

from kafkalite.clock import Outcome
from kafkalite.cluster.configs.writes import NODE_BYTES_MAX, ConfigChange, ConfigWriter, Written, topic_node
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.cluster.metadata.image import TopicImage
from kafkalite.cluster.metadata.store import convert_outcome
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError
from kafkalite.coordination.tree import Create, Set
from kafkalite.coordination.znodes.controller import delete_topic_path
from kafkalite.errors import ErrorWithReason, KafkaErrorCode

FAILED = KafkaErrorCode.UNKNOWN_SERVER_ERROR

Done = Callable[[int], None]


class TopicWriter:
    """The writes of one session; `then` of each is called once with 0 or a Kafka error code.

    Arguments:
        session: with the coordination service.

    Attributes:
        configs: changes configs over the same session.
    """

    def __init__(self, session: Coordination) -> None:
        self.configs = ConfigWriter(session)
        self._session = session

    def create_topic(self, topic: TopicImage, then: Done) -> None:
        """Create a topic without partition states; TOPIC_ALREADY_EXISTS if its node exists."""
        data = znodes.encode_topic(znodes.TopicNode(topic.topic_id, replicas_of(topic)))
        if len(data) > NODE_BYTES_MAX:
            then(too_large(len(topic.partitions)))
            return
        path, configs = znodes.topic_config_path(topic.name), znodes.encode_configs(topic.configs or {})
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
                convert_outcome(then, KafkaErrorCode.TOPIC_ALREADY_EXISTS)(outcome)

        def read_back(outcome: Outcome) -> None:
            if isinstance(outcome.error, NoNodeError):
                then(unknown_result())
            elif outcome.error is not None:
                convert_outcome(then)(outcome)
            else:
                then(0 if outcome.value[0] == data else KafkaErrorCode.TOPIC_ALREADY_EXISTS)

        self._session.multi((Create(path, configs), node), made)

    def update_topic(self, topic: TopicImage, then: Done) -> None:
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
            if node.topic_id != topic.topic_id:
                then(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # it was deleted, and created again
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
        if isinstance(outcome.error, BadVersionError):
            self.update_topic(topic, then)
            return
        if not isinstance(outcome.error, ConnectionLossError):
            convert_outcome(then)(outcome)
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

    def delete_topic(self, topic: TopicImage, then: Done) -> None:
        """Ask the controller to delete a topic; also if that was asked before."""
        path = delete_topic_path(topic.name)

        def made(outcome: Outcome) -> None:
            if isinstance(outcome.error, NodeExistsError):
                then(0)
            elif isinstance(outcome.error, ConnectionLossError):
                self._session.exists(path, read_back)
            else:
                convert_outcome(then)(outcome)

        def read_back(outcome: Outcome) -> None:
            if outcome.error is not None:
                then(code_of(outcome.error))
            else:
                then(unknown_result() if outcome.value is None else 0)

        self._session.create(path, b"", made)

    def change_topic_configs(
        self, name: str, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool
    ) -> None:
        """Change the configs of a topic; see `ConfigWriter.change`."""
        self.configs.change(topic_node(name), change, then, validate_only=validate_only)


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
