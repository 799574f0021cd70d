"""Members of groups: assignments over thousands of topics, sessions that expire together after a start (B5, B9)."""

import shutil
import time

from perf.loads.base import Sample, Trial
from perf.loads.fairness import wire
from perf.loads.fairness.base import KAFKALITE, Hostile, group_names
from perf.loads.fairness.client import Client, Member

SESSION_MS = 30_000  # longer than the members take to join
AT_ONCE = {"group.consumer.assignment.interval.ms": "0"}
NO_DELAY = {"group.initial.rebalance.delay.ms": "0"}  # else 200 members join every 3 s


class SecondMember(Hostile):
    """A member joins a KIP-848 group whose only member owns all partitions of all topics, and gets half of them."""

    def __init__(self, topics: int) -> None:
        title = f"a second member joins a consumer group that reads {topics:,} topics"
        super().__init__(f"second-member-{topics}", title, settings=AT_ONCE)
        self._topics = topics

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create(self._names(trial), 1)

    def _names(self, trial: Trial) -> list[str]:
        return [f"assigned-{number:05}" for number in range(trial.scaled(self._topics, self._topics // 20))]

    def before(self, trial: Trial, client: Client) -> None:
        self._first = self._join(trial, client, "first")
        client.beat_until([self._first], len(self._names(trial)))

    def attack(self, trial: Trial, client: Client) -> None:
        second = self._join(trial, client, "second")
        client.beat_until([self._first, second], len(self._names(trial)) // 2)

    def _join(self, trial: Trial, client: Client, member: str) -> Member:
        group = f"assigned-{trial.round}"
        (joined,) = client.join_consumers([(group, wire.consumer_join(group, member, self._names(trial)))])
        return Member(group, member, joined)


class ManyMembers(Hostile):
    """500 members join one KIP-848 group that reads 20 of 500 topics each."""

    def __init__(self) -> None:
        super().__init__(
            "many-members", "500 members of a consumer group join, 20 of 500 topics each", settings=AT_ONCE
        )

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create(self._names(trial), 4)

    def _names(self, trial: Trial) -> list[str]:
        return [f"shared-{number:03}" for number in range(trial.scaled(500, 50))]

    def attack(self, trial: Trial, client: Client) -> None:
        group, names = f"shared-{trial.round}", self._names(trial)
        joins = [
            (
                group,
                wire.consumer_join(group, f"m{number:04}", [names[(number * 7 + at) % len(names)] for at in range(20)]),
            )
            for number in range(trial.scaled(500, 50))
        ]
        client.join_consumers(joins)


class NewGroups(Hostile):
    """Many groups commit for the first time: all of them stay in memory, where the garbage collector looks at them."""

    def __init__(self) -> None:
        super().__init__("new-groups", "the first commits of 100,000 groups, 200 under way")

    def prepare(self, trial: Trial) -> None:
        with Client(trial.broker) as client:
            client.create(["read"], 1)
            client.commit(["first"], "read")

    def attack(self, trial: Trial, client: Client) -> None:
        client.commit(group_names("new", trial, trial.scaled(100_000, 5_000)), "read")


class SessionsAfterStart(Hostile):
    """The broker starts with members in its log that never come back: all sessions expire together."""

    starts_broker = True

    def __init__(self, members: int) -> None:
        title = f"{members:,} classic members expire {SESSION_MS // 1000} s after a start of the broker"
        super().__init__(f"sessions-{members}", title, brokers=KAFKALITE, settings=NO_DELAY)
        self._members = members

    def attack(self, trial: Trial, client: Client) -> None:
        time.sleep(SESSION_MS / 1000 + 2)

    def run(self, trial: Trial) -> Sample:
        directory = trial.directory / f"round-{trial.round}"
        broker = trial.kind.start(directory, self.settings)
        groups = group_names("sessions", trial, trial.scaled(self._members, self._members // 20))
        with Client(broker) as client:
            client.create(["read"], 1)
            client.join_alone(groups, "read", SESSION_MS)
        broker.stop()
        broker = trial.kind.start(directory, self.settings)
        try:
            return super().run(Trial(trial.kind, trial.directory, trial.round, trial.quick, broker))
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
