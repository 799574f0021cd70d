"""An exception in each step that prepares the requests of a consumer: the next attempt sends the same requests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafkalite_sdk.consumer.offsets.commits import Commits
from kafkalite_sdk.consumer.offsets.committed_offsets import CommittedOffsets, FetchOffsetsCall
from kafkalite_sdk.consumer.offsets.leader_lookups import OffsetLookups
from kafkalite_sdk.consumer.offsets.offset_reset import EARLIEST
from kafkalite_sdk.consumer.offsets.offset_resolver import OffsetResolver
from kafkalite_sdk.consumer.offsets.positions import Positions
from kafkalite_sdk.membership.settings import MemberIdentity
from kafkalite_sdk.values import OffsetAndMetadata

from kafkalite.model import TopicPartition
from tests.kit.steps import Bug, Stepper
from tests.unit.sdk.fetch_rig import Rig, data, offset, partitions
from tests.unit.sdk.test_fetched_records import batch
from tests.unit.sdk.test_leader_lookups import view_of

FETCHES = ("fetch/fetcher", "fetch/fetch_node", "fetch/fetch_plan", "fetch/fetch_session", "offsets/positions")
OTHERS = ("offsets/commits", "offsets/committed_offsets", "offsets/leader_lookups", "offsets/offset_resolver")
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
World = Callable[[], Iterator[Any]]


def stepper(modules: tuple[str, ...]) -> Stepper:
    return Stepper(tuple(f"sdk/kafkalite_sdk/consumer/{each}.py" for each in modules))


def check_each_step(modules: tuple[str, ...], new_world: Callable[[], World], least: int) -> None:
    """Compare the requests that leave behind an exception with those that leave without one."""
    steps = stepper(modules)
    requests = new_world()
    with steps.found() as found:
        expected = sorted(requests())
    assert expected and len(found) >= least
    for step in found:
        requests, sent = new_world(), []
        with steps.fails_at(step):
            with pytest.raises(Bug):
                for each in requests():
                    sent.append(each)
            assert steps.raised
            sent += requests()
            assert sorted(sent) == expected, f"after an exception in {step}"


def started_fetches() -> World:
    rig = Rig(1, 2)

    return lambda: ((call.node, partitions(call)) for call in rig.fetcher.requests(rig.now, lambda _: True))


def continued_fetches() -> World:
    """One partition has moved, one has ended, one has a record."""
    rig = Rig(1, 1, 1)
    call = rig.request()
    rig.answer(call, data(batch(0, b"a")), session_id=5)
    rig.positions.assign([TopicPartition("orders", number) for number in (0, 1)])
    rig.positions.seek(rig.state(1), 7)

    def requests() -> Iterator[Any]:
        for call in rig.fetcher.requests(rig.now, lambda _: True):
            yield offset(call), offset(call, 1), partitions(call)

    return requests


def lookups() -> World:
    machine = OffsetLookups(view_of(1, 2), 0.1, 0)
    for each in (A, B):
        machine.find(each, -1, lambda _: None)
    return lambda: ((call.node, list(call.lookups)) for call in machine.requests(0.0, lambda _: True))


def commits() -> World:
    machine = Commits("g", 0.1)
    machine.commit({A: OffsetAndMetadata(5)}, 60.0, lambda _: None)
    return lambda: (list(call.offsets) for call in machine.requests(0.0, MemberIdentity("g", 3, "m", None)))


def committed_offsets() -> World:
    machine = CommittedOffsets("g", 0.1, 0.4)
    machine.fetch([A, B], lambda _: None)
    return lambda: (asked(call) for call in machine.requests(0.0))


def asked(call: FetchOffsetsCall) -> list[tuple[str, list[int]]]:
    return [(topic.name, topic.partition_indexes) for topic in call.request.groups[0].topics]


def resolved_positions() -> World:
    view, positions = view_of(1, 1), Positions(EARLIEST)
    offsets = OffsetLookups(view, 0.1, 0)
    committed = CommittedOffsets("g", 0.1, 0.4)
    resolver = OffsetResolver(positions, view, offsets, offsets, committed, lambda _: None)  # type: ignore[arg-type]
    positions.assign([A, B])
    positions.begin_reset(positions.states[B], EARLIEST)

    def requests() -> Iterator[Any]:
        resolver.advance(0)
        for lookup in offsets.requests(0.0, lambda _: True):
            yield [(each.topic, [each.partition]) for each in lookup.lookups]
        for question in committed.requests(0.0):
            yield asked(question)

    return requests


@pytest.mark.parametrize("new_world", [started_fetches, continued_fetches])
def test_exception_in_any_step_of_fetch_requests_delays_them_only(new_world: Callable[[], World]) -> None:
    check_each_step(FETCHES, new_world, 20)


@pytest.mark.parametrize("new_world", [lookups, commits, committed_offsets, resolved_positions])
def test_exception_in_any_step_of_other_requests_delays_them_only(new_world: Callable[[], World]) -> None:
    check_each_step(OTHERS, new_world, 3)


def test_requests_that_the_caller_does_not_take_leave_later() -> None:
    rig = Rig(1, 2)
    first = next(rig.fetcher.requests(rig.now, lambda _: True))
    assert [first.node] + [call.node for call in rig.requests()] == [1, 2]
