"""Members of groups: assignments over thousands of topics, sessions that expire together after a start (B5, B9)."""

import shutil
import time

from perf.loads.base import Sample, Turn
from perf.loads.fairness import wire
from perf.loads.fairness.base import KAFKALITE, Hostile, group_names
from perf.loads.fairness.client import Client

SESSION_MS = 30_000  # longer than the members take to join
JOIN_S = 2.0
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}  # else 200 members join every 3 s


class SecondMember(Hostile):
    """A member joins a KIP-848 group whose only member owns all partitions of all topics."""

    def __init__(self, topics: int) -> None:
        title = f"a second member joins a consumer group that reads {topics:,} topics"
        super().__init__(f"second-member-{topics}", title, settings=AT_ONCE)
        self._topics = topics

    def prepare(self, turn: Turn) -> None:
        with Client(turn.broker) as client:
            client.create(self._names(turn), 1)

    def _names(self, turn: Turn) -> list[str]:
        return [f"assigned-{number:05}" for number in range(turn.scaled(self._topics, self._topics // 20))]

    def before(self, turn: Turn, client: Client) -> None:
        self._join(turn, client, "first")
        time.sleep(JOIN_S)  # the target assignment may be computed after the response

    def attack(self, turn: Turn, client: Client) -> None:
        self._join(turn, client, "second")
        time.sleep(JOIN_S)

    def _join(self, turn: Turn, client: Client, member: str) -> None:
        group = f"assigned-{turn.round}"
        client.join_consumers([(group, wire.consumer_join(group, member, self._names(turn)))])


class ManyMembers(Hostile):
    """500 members join one KIP-848 group that reads 20 of 500 topics each."""

    def __init__(self) -> None:
        super().__init__(
            "many-members", "500 members of a consumer group join, 20 of 500 topics each", settings=AT_ONCE
        )

    def prepare(self, turn: Turn) -> None:
        with Client(turn.broker) as client:
            client.create(self._names(turn), 4)

    def _names(self, turn: Turn) -> list[str]:
        return [f"shared-{number:03}" for number in range(turn.scaled(500, 50))]

    def attack(self, turn: Turn, client: Client) -> None:
        group, names = f"shared-{turn.round}", self._names(turn)
        joins = [
            (
                group,
                wire.consumer_join(group, f"m{number:04}", [names[(number * 7 + at) % len(names)] for at in range(20)]),
            )
            for number in range(turn.scaled(500, 50))
        ]
        client.join_consumers(joins)


class NewGroups(Hostile):
    """Many groups commit for the first time: all of them stay in memory, where the garbage collector looks at them."""

    def __init__(self) -> None:
        super().__init__("new-groups", "the first commits of 100,000 groups, 200 under way")

    def prepare(self, turn: Turn) -> None:
        with Client(turn.broker) as client:
            client.create(["read"], 1)
            client.commit(["first"], "read")

    def attack(self, turn: Turn, client: Client) -> None:
        client.commit(group_names("new", turn, turn.scaled(100_000, 5_000)), "read")


class SessionsAfterStart(Hostile):
    """The broker starts with members in its log that never come back: all sessions expire together."""

    starts_broker = True

    def __init__(self, members: int) -> None:
        title = f"{members:,} classic members expire {SESSION_MS // 1000} s after a start of the broker"
        super().__init__(f"sessions-{members}", title, brokers=KAFKALITE, settings=NO_DELAY)
        self._members = members

    def attack(self, turn: Turn, client: Client) -> None:
        time.sleep(SESSION_MS / 1000 + 2)

    def run(self, turn: Turn) -> Sample:
        directory = turn.directory / f"round-{turn.round}"
        broker = turn.kind.start(directory, self.settings)
        groups = group_names("sessions", turn, turn.scaled(self._members, self._members // 20))
        with Client(broker) as client:
            client.create(["read"], 1)
            client.join_alone(groups, "read", SESSION_MS)
        broker.stop()
        broker = turn.kind.start(directory, self.settings)
        try:
            return super().run(Turn(turn.kind, turn.directory, turn.round, turn.quick, broker))
        finally:
            broker.stop()
            shutil.rmtree(directory)


LOADS = (
    SecondMember(1_000),
    SecondMember(5_000),
    ManyMembers(),
    NewGroups(),
    SessionsAfterStart(10_000),
    SessionsAfterStart(20_000),
)
