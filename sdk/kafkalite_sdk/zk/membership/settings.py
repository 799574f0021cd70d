"""The settings of the machine, with the defaults of Java's consumer (ConsumerConfig.scala)."""

from typing import NamedTuple

from kafkalite.coordination.znodes.consumers import Registration, check_group
from kafkalite_sdk.zk.membership.assignors import PARTITION_TEXTS, RANGE, STRATEGIES

RANDOM_DIGITS = 8


class MembershipSettings(NamedTuple):
    """What a consumer of a group in ZooKeeper does.

    Attributes:
        group: its name.
        consumer_id: see `new_consumer_id`.
        subscription: see the functions of `subscription`.
        strategy: `partition.assignment.strategy`, "range" or "roundrobin".
        round_robin_release: the release whose order of partitions round robin has, "1.1" or "0.10" (and before).
        excludes_internal: `exclude.internal.topics`.
        rebalance_retries: `rebalance.max.retries`.
        rebalance_backoff_s: `rebalance.backoff.ms`.
        auto_commit_interval_s: `auto.commit.interval.ms`, None = `auto.commit.enable` is false.
        commit_retries: `offsets.commit.max.retries`.
        commit_backoff_s: `offsets.channel.backoff.ms`.
        session_timeout_s: `zookeeper.session.timeout.ms`, as negotiated.
    """

    group: str
    consumer_id: str
    subscription: Registration
    strategy: str = RANGE
    round_robin_release: str = "1.1"
    excludes_internal: bool = True
    rebalance_retries: int = 4
    rebalance_backoff_s: float = 2.0
    auto_commit_interval_s: float | None = 60.0
    commit_retries: int = 5
    commit_backoff_s: float = 1.0
    session_timeout_s: float = 6.0

    @property
    def rebalance_timeout_s(self) -> float:
        """How long the attempts of a rebalance last, and how long a release may last at most."""
        return self.rebalance_retries * self.rebalance_backoff_s

    @property
    def commit_timeout_s(self) -> float:
        """How long a commit may last, with all retries, while the consumer has its session."""
        return self.session_timeout_s + (self.commit_retries + 1) * self.commit_backoff_s

    @property
    def id_timeout_s(self) -> float:
        """How long the registration of an earlier process is waited for: ZooKeeper ends sessions up to a tick late."""
        return 2 * self.session_timeout_s

    @property
    def release_commit_timeout_s(self) -> float:
        """How long the commit of a release may last: other consumers wait for the owner nodes meanwhile."""
        return self.rebalance_timeout_s / 2

    def check(self) -> None:
        """Raises: ValueError for a setting out of range."""
        check_group(self.group)
        if "/" in self.consumer_id or not self.consumer_id:
            raise ValueError(f"consumer id {self.consumer_id!r}: not the name of a znode")
        if self.strategy not in STRATEGIES:
            raise ValueError(
                f"partition.assignment.strategy {self.strategy!r}: expected one of {', '.join(STRATEGIES)}"
            )
        if self.round_robin_release not in PARTITION_TEXTS:
            raise ValueError(f"release {self.round_robin_release!r}: expected one of {', '.join(PARTITION_TEXTS)}")
        if self.rebalance_retries < 1 or self.rebalance_backoff_s <= 0:
            raise ValueError("rebalance.max.retries and rebalance.backoff.ms must be greater than 0")


def new_consumer_id(group: str, host: str, wall_ms: int, number: int) -> str:
    """The id of a consumer as Java builds it.

    Arguments:
        group: its name.
        host: the name of this host.
        wall_ms: milliseconds since 1970.
        number: 64 random bits.
    """
    return f"{group}_{host}-{wall_ms}-{number:016x}"[: -(16 - RANDOM_DIGITS)]
