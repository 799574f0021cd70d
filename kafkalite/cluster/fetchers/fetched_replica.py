"""A partition that this broker fetches from its leader."""

from kafkalite.clock import Timer
from kafkalite.cluster.partition.follower import Follower
from kafkalite.cluster.partition.partition import Partition
from kafkalite.model import uuid_text
from kafkalite.state.follower.fetch_session import Position
from kafkalite.state.follower.partition_fetch import PartitionFetch
from kafkalite.storage.log.log import Log

PartitionKey = tuple[bytes, int]  # topic id, index
UNKNOWN_LAG = -1


def name_of(key: PartitionKey) -> str:
    """Name a partition that may be unknown here."""
    topic_id, index = key
    return f"partition {index} of the topic id {uuid_text(topic_id)}"


class FetchedReplica:
    """A partition in one fetcher.

    Arguments:
        partition: its role is Follower, and its log is open.
        flush_first: whether it is in a session of partitions that flush before the next fetch.

    Attributes:
        key: in requests and responses.
        log: of the partition.
        leader_epoch: in which it is fetched.
        fetch: its state.
        lag: records behind the leader's high watermark, -1 = unknown.
        since: number of the first request whose response is used: earlier ones were sent in another state.
        step: what its state waits for; the end of another step is ignored.
        timer: of its pause.
    """

    __slots__ = (
        "_role",
        "fetch",
        "flush_first",
        "key",
        "lag",
        "leader_epoch",
        "log",
        "partition",
        "since",
        "step",
        "timer",
    )

    def __init__(self, partition: Partition, flush_first: bool) -> None:
        log, role = partition.log, partition.role
        assert log is not None, f"{partition.topic}-{partition.index} has no files yet"
        assert isinstance(role, Follower), f"{partition.topic}-{partition.index} is not a follower"
        self.partition = partition
        self._role = role
        self.log: Log = log
        self.flush_first = flush_first
        self.key: PartitionKey = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.fetch = PartitionFetch()
        self.lag = UNKNOWN_LAG
        self.since = 0
        self.step: object = None
        self.timer: Timer | None = None

    @property
    def name(self) -> str:
        """Topic and index, for reports."""
        return f"{self.partition.topic}-{self.partition.index}"

    @property
    def role(self) -> Follower:
        """The role of the partition, which begins again with each state of the controller."""
        role = self.partition.role
        return role if isinstance(role, Follower) else self._role

    @property
    def is_usable(self) -> bool:
        """Whether the partition still follows with this log; the owner stops it before anything else happens to it."""
        return self.partition.log is self.log and isinstance(self.partition.role, Follower)

    @property
    def must_flush(self) -> bool:
        """Whether flush.messages requires a flush before the next fetch: it says that this replica has the records."""
        log = self.log
        return log.log_end_offset - log.recovery_point >= self.partition.config.flush_messages

    def position(self) -> Position:
        """Where the next fetch of it begins."""
        log = self.log
        return Position(log.log_end_offset, log.epochs.latest, log.log_start_offset, self.leader_epoch)

    def begin_step(self) -> object:
        """Begin to wait for something, and for nothing else any more; the result identifies it."""
        self.end_steps()
        self.step = object()
        return self.step

    def end_steps(self) -> None:
        """Wait for nothing."""
        self.step = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
