"""Changes the config nodes of topics, brokers and groups: reads a node, changes its texts, writes that version.

1. If another broker has changed the node meanwhile, the change begins again from the new texts: no change is lost.
2. After a lost connection the node is read back. If it does not have the texts, the change has failed.
3. A node of a topic is written only while the topic exists.
4. A node that cannot be read as configs can only be replaced as a whole.

Sources: AdminZkClient.scala, ZkConfigManager.scala of Apache Kafka 3.9, which writes without a version.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import quote

from kafkalite.callbacks import fail_on_exception, once
from kafkalite.clock import Outcome, Then
from kafkalite.cluster.coordination_errors import code_of
from kafkalite.config.keys import ConfigError
from kafkalite.coordination import znodes
from kafkalite.coordination.backend import Coordination
from kafkalite.coordination.errors import BadVersionError, ConnectionLossError, NodeExistsError, NoNodeError
from kafkalite.coordination.tree import Check, Create, Delete, Operation, Set
from kafkalite.errors import ErrorWithReason, KafkaErrorCode

NODE_BYTES_MAX = 1_000_000  # ZooKeeper closes connections with requests above 1 MiB (jute.maxbuffer)
ATTEMPTS_MAX = 100  # of one change; each conflict is the success of another one

Texts = Mapping[str, str]
# Returns the new texts; raises ConfigError. None: the node has no valid configs.
ConfigChange = Callable[[Texts | None], Texts]


class ConfigNode(NamedTuple):
    """A node with configs.

    Arguments:
        path: of the node.
        entity: as notifications name it.
        changes: the node above its notifications.
        owner: a node without which it is not written, "" = there is none.
        removable: the node is deleted with its last text.
    """

    path: str
    entity: str
    changes: str = znodes.CONFIG_CHANGES
    owner: str = ""
    removable: bool = False

    def notice(self) -> Create:
        """The notification of a change."""
        return notice_of(self.entity, self.changes)


def notice_of(entity: str, changes: str) -> Create:
    """The notification of a change of an entity, below the node `changes`."""
    return Create(f"{changes}/{znodes.CONFIG_CHANGE}", znodes.encode_config_change(entity), sequence=True)


def topic_node(name: str) -> ConfigNode:
    """The config node of a topic."""
    path = znodes.topic_config_path(name)
    return ConfigNode(path, f"topics/{quote(name, safe='')}", owner=znodes.topic_path(name))


def broker_node(broker_id: int | None) -> ConfigNode:
    """The config node of a broker, or of all brokers (None)."""
    path = znodes.broker_config_path(broker_id)
    return ConfigNode(path, path.removeprefix("/config/"))


def group_node(group: str) -> ConfigNode:
    """The config node of a group, which need not exist."""
    path = znodes.group_config_path(group)
    return ConfigNode(path, path.removeprefix("/kafkalite/"), znodes.GROUP_CHANGES, removable=True)


class Written(NamedTuple):
    """The result of a change: a Kafka error code, 0 = the texts are stored, or would be."""

    error: int
    texts: Texts


# Runs a transaction that changes a node, in a cluster with its notification.
Run = Callable[[ConfigNode, list[Operation], Then], object]


class ConfigWriter:
    """The changes of configs over one session.

    Arguments:
        session: with the coordination service.
        run: writes; None: with the notification that other brokers watch.
    """

    def __init__(self, session: Coordination, run: Run | None = None) -> None:
        self._session = session
        self._run = run or self._notify

    def change(
        self, node: ConfigNode, change: ConfigChange, then: Callable[[Written], object], *, validate_only: bool = False
    ) -> None:
        """Change the texts of a node.

        Arguments:
            node: which one.
            change: returns the new texts; may be called several times.
            then: called once with the result.
            validate_only: nothing is written.
        """
        NodeChange(self._session, self._run, node, change, once(then), validate_only).begin()

    def _notify(self, node: ConfigNode, operations: list[Operation], then: Then) -> None:
        self._session.multi([*operations, node.notice()], then)


class NodeChange:
    """One change of a node, with its repetitions; `ConfigWriter` describes the arguments."""

    def __init__(
        self,
        session: Coordination,
        run: Run,
        node: ConfigNode,
        change: ConfigChange,
        then: Callable[[Written], object],
        validate_only: bool,
    ) -> None:
        self._session = session
        self._run = run
        self._node = node
        self._change = change
        self._then = then
        self._validate_only = validate_only
        self._attempts = 0
        self._texts: Texts = {}

    def begin(self) -> None:
        """Read the node, and change it."""
        self._attempts += 1
        if self._attempts > ATTEMPTS_MAX:
            text = "The configs were changed by other requests all the time: try again"
            self._end(ErrorWithReason(KafkaErrorCode.REQUEST_TIMED_OUT, text))
        else:
            self._session.get(self._node.path, fail_on_exception(self._read, self._failed))

    def _failed(self) -> None:
        self._end(KafkaErrorCode.UNKNOWN_SERVER_ERROR)

    def _end(self, error: int) -> None:
        self._then(Written(error, self._texts))

    def _read(self, outcome: Outcome) -> None:
        if outcome.error is not None and not isinstance(outcome.error, NoNodeError):
            self._end(code_of(outcome.error))
            return
        data, stat = outcome.value if outcome.error is None else (None, None)
        current, invalid = self._decode(data)
        try:
            self._texts = self._change(current)
        except ConfigError as error:
            self._end(ErrorWithReason(error.code, f"{invalid}{error}"))
            return
        if self._validate_only:
            self._end(0)
        else:
            self._write(None if stat is None else stat.version)

    def _decode(self, data: bytes | None) -> tuple[Texts | None, str]:
        """The texts in the node, none without a node; None if they are invalid, and why."""
        if data is None:
            return {}, ""
        try:
            return znodes.decode_configs(self._node.path, data), ""
        except znodes.ZnodeError as error:
            return None, f"{error}; "

    def _write(self, version: int | None) -> None:
        """Write the texts, if the node still has this version; None: if it does not exist."""
        path, data = self._node.path, znodes.encode_configs(self._texts)
        if len(data) > NODE_BYTES_MAX:
            text = f"The configs have {len(data)} bytes, allowed are {NODE_BYTES_MAX}"
            self._end(ErrorWithReason(KafkaErrorCode.INVALID_CONFIG, text))
            return
        first: Operation
        if self._node.removable and not self._texts:
            if version is None:
                self._end(0)
                return
            first = Delete(path, version)
        else:
            first = Create(path, data) if version is None else Set(path, data, version)
        owner = [Check(self._node.owner)] if self._node.owner else []
        self._run(self._node, [first, *owner], fail_on_exception(self._written, self._failed))

    def _written(self, outcome: Outcome) -> None:
        error = outcome.error
        if error is None:
            self._end(0)
        elif isinstance(error, ConnectionLossError):
            self._read_back(code_of(error))
        elif isinstance(error, (BadVersionError, NoNodeError, NodeExistsError)) and error.at == 0:
            self.begin()
        else:
            self._end(code_of(error))

    def _read_back(self, error: int) -> None:
        """Read the node after a write without a response; `error` is that of the change if it was not made."""

        def read(outcome: Outcome) -> None:
            there = outcome.error is None
            if there or isinstance(outcome.error, NoNodeError):
                texts, _invalid = self._decode(outcome.value[0] if there else None)
                self._end(0 if texts == self._texts else error)
            else:
                self._end(error)

        self._session.get(self._node.path, fail_on_exception(read, self._failed))
