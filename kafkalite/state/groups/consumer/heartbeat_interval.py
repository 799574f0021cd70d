"""The heartbeat interval of responses: short while a member waits for partitions that the broker has still to assign.

A member learns of its assignment with a heartbeat only. With the configured interval (5 s) in every response, as in
Apache Kafka, it would wait up to 5 s for a target assignment that is computed outside the heartbeat or later, for a
pattern that is being resolved, and for partitions that another member has released meanwhile. Java, librdkafka and
franz-go use the interval of each response for their next heartbeat.

A response is not held instead: the connection answers in order, and commits would wait behind it.
"""

from kafkalite.state.effects import Now
from kafkalite.state.groups.consumer.group import ConsumerGroup
from kafkalite.state.groups.consumer.reconciliation import MemberState
from kafkalite.state.groups.consumer.requests import ConsumerGroupSettings
from kafkalite.state.groups.consumer.target_assignment import deferred_ms

SHORT_MS = 250
"""The shortest interval. librdkafka uses the interval as the timeout of its next heartbeat, and closes the connection
when one passes: it must exceed round trips and pauses of the broker. Java waits 100 ms in any case."""

WAIT_SHARE = 4
"""The interval grows to this fraction of the time for which the member has been waiting, up to the configured one: a
member whose partitions another one keeps for minutes sends some 20 heartbeats more than without."""


class WaitingMembers:
    """The members that wait for partitions. Not durable: after a replay they wait from their next heartbeat on."""

    def __init__(self) -> None:
        self._since_ms: dict[tuple[str, str], int] = {}

    @property
    def count(self) -> int:
        """Their number."""
        return len(self._since_ms)

    def interval_ms(
        self,
        group: ConsumerGroup,
        member_id: str,
        settings: ConsumerGroupSettings,
        now: Now,
        *,
        subscribes: bool,
        progressed: bool,
    ) -> int:
        """The interval of the response to a heartbeat.

        Arguments:
            group: after the heartbeat.
            member_id: its sender.
            settings: of the group.
            now: the time.
            subscribes: whether it joins or changes its subscription.
            progressed: whether it has changed the assignment.
        """
        name = group.group_id, member_id
        if not _waits(group, member_id, subscribes=subscribes or name in self._since_ms):
            self._since_ms.pop(name, None)
            return settings.heartbeat_interval_ms
        since_ms = now.ms if progressed else self._since_ms.get(name, now.ms)
        self._since_ms[name] = since_ms
        target_ms = deferred_ms(group, settings, now) or 0
        return min(max(SHORT_MS, (now.ms - since_ms) // WAIT_SHARE, target_ms), settings.heartbeat_interval_ms)

    def forget(self, name: tuple[str, str]) -> None:
        """A member is no longer in its group; `name` is its group and member id."""
        self._since_ms.pop(name, None)


def _waits(group: ConsumerGroup, member_id: str, *, subscribes: bool) -> bool:
    """Whether the member gets partitions without doing anything itself. A member that must revoke partitions reports
    that at once; a member that no change concerns does not wait for the next target assignment.
    """
    pattern, state = group.members[member_id].subscribed_topic_regex, group.current(member_id).state
    if state == MemberState.UNREVOKED_PARTITIONS:
        return False
    if state == MemberState.UNRELEASED_PARTITIONS or (pattern and pattern not in group.patterns):
        return True
    return group.epoch > group.assignment_epoch and (subscribes or member_id not in group.targets)
