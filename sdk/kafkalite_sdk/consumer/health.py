"""The reports of a consumer about itself: for health checks and for people.

`kafkalite_sdk.membership.poll_interval` enforces `max_poll_interval_ms`.
"""

from collections.abc import Mapping
from math import inf
from typing import NamedTuple

from kafkalite.model import TopicPartition
from kafkalite_sdk.client.channels import DATA
from kafkalite_sdk.client.cluster_view import NO_LEADER
from kafkalite_sdk.consumer.driver import AnyDriver
from kafkalite_sdk.consumer.group_requests import GROUP_CHANNEL
from kafkalite_sdk.consumer.offsets.positions import PartitionState

CHANNELS = (DATA, GROUP_CHANNEL)


class BrokerHealth(NamedTuple):
    """The connection to a broker.

    Attributes:
        address: host:port.
        connected: a request would be sent at once: for records, or to the broker as coordinator of the group.
        open_requests: those without a response.
    """

    address: str
    connected: bool
    open_requests: int


class ConsumerHealth(NamedTuple):
    """The state of a consumer.

    Attributes:
        waiting_for: what `poll` waits for, such as "records" or "the coordinator of group g"; between polls a broker
            that cannot be reached; topics that the cluster does not have; None = nothing.
        assignment: the partitions that are read.
        group: None = the consumer has no group.
        group_protocol: "classic", "consumer" or "registered"; None = no group, or not determined yet.
        group_state: of the member, None = no group.
        member_id: None = not a member.
        generation: of the group, or member epoch; None = not a member.
        coordinator: broker id, None = unknown.
        last_poll_s: seconds since the last poll began, None = there was none.
        last_heartbeat_s: seconds since the coordinator accepted a heartbeat, None = it did not.
        lag: records behind the position by partition, None = unknown.
        brokers: by broker id.
    """

    waiting_for: str | None
    assignment: frozenset[TopicPartition]
    group: str | None
    group_protocol: str | None
    group_state: str | None
    member_id: str | None
    generation: int | None
    coordinator: int | None
    last_poll_s: float | None
    last_heartbeat_s: float | None
    lag: Mapping[TopicPartition, int | None]
    brokers: Mapping[int, BrokerHealth]


def lag_of(driver: AnyDriver) -> dict[TopicPartition, int | None]:
    """The records between what the application has received and the end of each log; None = not known yet."""
    committed_only = driver.settings.isolation_level
    consumed = driver.consumed_offsets()
    lag: dict[TopicPartition, int | None] = {}
    for each in driver.assignment():
        state = driver.positions.states[each]
        end = state.last_stable_offset if committed_only else state.high_watermark
        known = each in consumed and end >= 0
        lag[each] = max(0, end - consumed[each].offset) if known else None
    return lag


def brokers_of(driver: AnyDriver) -> dict[int, BrokerHealth]:
    """The brokers of the cluster."""
    client = driver.client
    return {
        node: BrokerHealth(
            f"{each.host}:{each.port}",
            any(client.is_connected(node, channel) for channel in CHANNELS),
            sum(client.in_flight(node, channel) for channel in CHANNELS),
        )
        for node, each in client.view.brokers.items()
    }


def waiting_for(driver: AnyDriver) -> str:
    """What a poll without records waits for."""
    group, states = driver.group, driver.positions.states
    if group is not None and group.subscribed and (group.coordinator is None or not states):
        if group.coordinator is None:
            return f"the coordinator of group {group.group}"
        missing = f"; {text}" if (text := driver.missing.text) else ""
        return f"an assignment of group {group.group}: {group.membership.state}{missing}"
    if not states:
        return "subscribe() or assign()"
    reasons = {_waits_for(driver, state): state for state in states.values()}
    reason = "records" if "records" in reasons else ", ".join(reasons)
    return reason if driver.missing.text is None else f"{reason}; {driver.missing.text}"


def _waits_for(driver: AnyDriver, state: PartitionState) -> str:
    each = state.topic_partition
    if state.revoking:
        return f"the next assignment of {each}"
    if state.paused:
        return f"resume() of {each}"
    if state.needs_committed:
        return f"the committed offset of {each}"
    leader = driver.client.view.leader(*each)
    if leader == NO_LEADER:
        return f"a leader of {each}"
    if state.reset is not None:
        return f"the offset at which {each} begins"
    if state.validating:
        return f"the validation of the offset of {each}"
    if not driver.client.is_connected(leader):
        return _connection(driver, leader)
    return "records"


def _connection(driver: AnyDriver, node: int, channel: str = DATA) -> str:
    error = driver.client.last_error(node, channel)
    return f"a connection to broker {node}" + ("" if error is None else f": {error}")


def _unreachable(driver: AnyDriver) -> str | None:
    """The connection of a coordinator or leader that was lost; None = there is none."""
    client, coordinator = driver.client, None if driver.group is None else driver.group.coordinator
    needed = [(client.view.leader(*each), DATA) for each in driver.positions.states]
    needed += [(coordinator, GROUP_CHANNEL)] if coordinator is not None else []
    for node, channel in dict.fromkeys(needed):
        if client.last_error(node, channel) is not None and not client.is_connected(node, channel):
            return _connection(driver, node, channel)
    return None


def health_of(driver: AnyDriver, polled_at: float, *, polling: bool) -> ConsumerHealth:
    """The state of a consumer.

    Arguments:
        driver: of the consumer.
        polled_at: time of the last poll on the loop's clock.
        polling: whether a poll waits.
    """
    now, group = driver.now(), driver.group
    membership = None if group is None or not group.subscribed else group.membership
    identity = None if membership is None else membership.identity()
    heartbeat = None if membership is None else membership.last_heartbeat
    return ConsumerHealth(
        waiting_for=waiting_for(driver) if polling else _unreachable(driver) or driver.missing.text,
        assignment=driver.assignment(),
        group=None if group is None else group.group,
        group_protocol=None if membership is None else membership.protocol,
        group_state=None if membership is None else membership.state,
        member_id=None if identity is None else identity.member_id,
        generation=None if identity is None else identity.generation,
        coordinator=None if group is None else group.coordinator,
        last_poll_s=now - polled_at if polled_at > -inf else None,
        last_heartbeat_s=None if heartbeat is None else now - heartbeat,
        lag=lag_of(driver),
        brokers=brokers_of(driver),
    )
