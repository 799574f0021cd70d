"""Logs that differ from their leader's, leaders that change, connections that end: during responses and jobs."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalite.cluster.partition.follower import Follower, FollowerAppend
from kafkalite.cluster.partition.partition import Partition
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.protocol.messages.list_offsets import ListOffsetsRequest
from kafkalite.slicing import Slicer
from kafkalite.state.follower.partition_fetch import FetchState
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.costly_clock import CostlyClock
from tests.story.fetchers.rig import FLUSHED, OTHER, FollowerRig, content, run
from tests.story.fetchers.scripted_leader import LeaderLog


async def follow_then_diverge(rig: FollowerRig, partition: Partition) -> LeaderLog:
    """The follower has three records of leader 2, of which leader 3 has the first; it has written others."""
    old, new = rig.log_of(partition), rig.log_of(partition, 3)
    new.batches, new.log_end_offset, new.entries = [old.append()], 1, list(old.entries)
    old.append(2)
    rig.follow(partition)
    await rig.caught_up(partition)
    new.lead(2)
    new.append(1, value=b"w")
    new.high_watermark = 1
    return new


def test_diverging_records_are_replaced_by_those_of_the_new_leader(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        await follow_then_diverge(rig, partition)
        rig.follow(partition, 2, leader=3)
        await rig.until(lambda: partition.high_watermark == 1)
        await rig.caught_up(partition, 3)

    run(tmp_path, story)


def test_truncation_repeats_until_both_logs_agree(tmp_path: Path) -> None:
    """Epochs 1, 2, 4 against 1, 2, 3: as KIP-279, with an epoch that the follower does not know."""

    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        old, new = rig.log_of(partition), rig.log_of(partition, 3)
        for epoch in (1, 2, 4):
            old.lead(epoch)
            old.append(2)
        for epoch in (1, 2, 3):
            new.lead(epoch)
            new.append(2 if epoch < 3 else 1)
        new.batches[:2] = old.batches[:2]
        rig.follow(partition, 4)
        await rig.caught_up(partition)
        new.lead(5)
        new.append(4)
        rig.follow(partition, 5, leader=3)
        await rig.caught_up(partition, 3)

    run(tmp_path, story)


def test_epoch_without_records_at_the_log_end_is_removed(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        old, new = rig.log_of(partition), rig.log_of(partition, 3)
        new.batches, new.log_end_offset, new.entries = [old.append()], 1, list(old.entries)
        rig.follow(partition)
        await rig.caught_up(partition)
        assert partition.log is not None
        partition.log.begin_leadership(2)  # this broker has led, and written nothing
        new.lead(3)
        new.append()
        rig.follow(partition, 3, leader=3)
        await rig.caught_up(partition, 3)
        assert partition.log.epochs.entries == [(1, 0), (3, 1)]

    run(tmp_path, story)


def test_divergence_that_the_log_does_not_have_is_no_endless_loop(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append()
        rig.follow(partition)
        await rig.caught_up(partition)

        def edit(response: FetchResponse) -> None:
            for data in (each for topic in response.responses for each in topic.partitions):
                data.diverging_epoch = type(data).EpochEndOffset(epoch=1, end_offset=5)

        rule = rig.broker.on(FetchRequest, edit=edit, times=None)
        theirs.append()
        rig.moved()
        count = len(rig.leaders[2].fetches)
        await pass_time(3.0)
        assert len(rig.leaders[2].fetches) - count < 60, "each attempt is followed by a pause"
        rule.end()
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_shorter_leader_after_an_unclean_election_truncates_the_follower(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        old, new = rig.log_of(partition), rig.log_of(partition, 3)
        for _ in range(5):
            old.append()
        rig.follow(partition)
        await rig.caught_up(partition)
        new.batches, new.log_end_offset = old.batches[:2], 2
        new.epoch_end = lambda epoch: (epoch, 99)  # type: ignore[method-assign]  # it compares no epochs
        rig.follow(partition, 1, leader=3)
        await rig.until(lambda: partition.log is not None and partition.log.log_end_offset == 2)
        await rig.caught_up(partition, 3)
        assert {each.node for each in rig.broker.log if each.api_key == 2} == {3}

    run(tmp_path, story)


def test_log_below_the_leaders_start_restarts_there(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append(2)
        rig.follow(partition)
        await rig.caught_up(partition)
        rig.stop(partition)
        for _ in range(4):
            theirs.append(3)
        theirs.begin_at(8)
        rig.follow(partition)
        await rig.caught_up(partition)
        assert partition.log is not None and partition.log.segments[0].base_offset == 8

    run(tmp_path, story)


def test_log_start_within_the_first_batch_of_the_leader(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        for _ in range(4):
            theirs.append(3)
        theirs.begin_at(7)
        rig.follow(partition)
        log = partition.log
        assert log is not None
        await rig.until(lambda: log.log_end_offset == 12)
        assert (log.log_start_offset, log.segments[0].base_offset) == (7, 6)
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_lookup_that_fails_is_repeated(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append(3)
        theirs.append(3)
        theirs.begin_at(3)
        rig.broker.on(ListOffsetsRequest, error=KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
        rig.follow(partition)
        await rig.caught_up(partition)

    run(tmp_path, story)


# Changes of the role while something is open.


async def in_truncation(rig: FollowerRig, partition: Partition) -> None:
    await follow_then_diverge(rig, partition)
    rig.jobs.held = True
    rig.follow(partition, 2, leader=3)
    await rig.until(lambda: rig.state(partition) is FetchState.TRUNCATING)


def test_other_partitions_are_fetched_during_a_truncation(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition, other = await rig.partition(0), await rig.partition(1)
        await in_truncation(rig, partition)
        rig.log_of(other, 3).lead(2)
        rig.log_of(other, 3).append()
        rig.follow(other, 2, leader=3)
        await rig.caught_up(other, 3)
        assert rig.state(partition) is FetchState.TRUNCATING
        rig.jobs.release()
        await rig.caught_up(partition, 3)

    run(tmp_path, story)


def test_newer_epoch_during_a_truncation_is_fetched_after_it(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        await in_truncation(rig, partition)
        rig.log_of(partition, 3).lead(3)
        rig.follow(partition, 3, leader=3)
        await pass_time(2.0)
        assert rig.state(partition) is FetchState.TRUNCATING
        rig.jobs.release()
        await rig.caught_up(partition, 3)

    run(tmp_path, story)


def test_leader_that_changes_during_a_truncation_gets_the_next_fetch_after_it(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        await in_truncation(rig, partition)
        theirs = rig.log_of(partition)
        theirs.batches, theirs.log_end_offset = theirs.batches[:1], 1
        theirs.lead(3)
        theirs.append(1, value=b"x")
        fetches = len(rig.leaders[2].fetches)
        rig.follow(partition, 3, leader=2)
        await pass_time(2.0)
        assert len(rig.leaders[2].fetches) == fetches
        rig.jobs.release()
        await rig.caught_up(partition)

    run(tmp_path, story)


async def fetching(rig: FollowerRig, partition: Partition) -> None:
    rig.follow(partition)
    await rig.caught_up(partition)


async def delayed(rig: FollowerRig, partition: Partition) -> None:
    rig.log_of(partition).error = KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
    rig.follow(partition)
    await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)


async def looking_up(rig: FollowerRig, partition: Partition) -> None:
    theirs = rig.log_of(partition)
    theirs.append(3)
    theirs.append(3)
    theirs.begin_at(3)
    rig.broker.on(ListOffsetsRequest, stall=True, times=2)
    rig.follow(partition)
    await rig.until(lambda: rig.state(partition) is FetchState.LOOKING_UP)


async def restarting(rig: FollowerRig, partition: Partition) -> None:
    theirs = rig.log_of(partition)
    theirs.append(3)
    theirs.append(3)
    theirs.begin_at(3)
    rig.jobs.held = True
    rig.follow(partition)
    await rig.until(lambda: rig.state(partition) is FetchState.RESTARTING)


async def flushing(rig: FollowerRig, partition: Partition) -> None:
    rig.log_of(partition).append()
    rig.jobs.held = True
    rig.follow(partition)
    await rig.until(lambda: rig.state(partition) is FetchState.FLUSHING)


async def fenced(rig: FollowerRig, partition: Partition) -> None:
    rig.log_of(partition).lead(9)
    rig.follow(partition)
    await rig.until(lambda: rig.state(partition) is FetchState.FAILED)


@pytest.mark.parametrize("reach", [fetching, delayed, looking_up, in_truncation, restarting, flushing, fenced])
def test_nothing_is_appended_after_a_stop(tmp_path: Path, reach: Callable) -> None:  # type: ignore[type-arg]
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition(config=FLUSHED if reach is flushing else None)
        await reach(rig, partition)
        rig.stop(partition)
        log = partition.log
        assert log is not None and rig.state(partition) is None
        rig.jobs.release()
        await pass_time(0.5)
        end, data = log.log_end_offset, content(log)
        for leader in (2, 3):
            rig.log_of(partition, leader).error = 0
            rig.log_of(partition, leader).append()
            rig.moved(leader)
        await pass_time(5.0)
        assert (log.log_end_offset, content(log)) == (end, data)
        assert partition.high_watermark <= end and rig.fetchers.lag_of(partition) == -1
        rig.stop(partition)
        rig.fetchers.stop_all()
        waiting: list[int] = []
        rig.logs.when_truncated(log, lambda: waiting.append(1))
        assert waiting == [1]

    run(tmp_path, story)


def test_partition_that_is_stopped_in_the_middle_of_a_response_gets_no_further_slice(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        rig.slicer = Slicer(CostlyClock(rig.clock), rig.report, budget_s=0.001)  # type: ignore[arg-type]  # a step each
        partition, other = await rig.partition(0), await rig.partition(0, "o", OTHER)
        theirs = rig.log_of(partition)
        for _ in range(10):
            theirs.append(1, size=90_000)
        rig.log_of(other).append()
        log = partition.log
        assert log is not None
        appends: list[int] = []
        rig.follow(partition)
        rig.follow(other)
        original = Follower.append_replicated

        def counted(self: Follower, batches: memoryview) -> FollowerAppend:
            appends.append(len(batches))
            found = original(self, batches)
            if len(appends) == 1:
                rig.clock.call_at(rig.clock.monotonic(), rig.stop, partition)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Follower, "append_replicated", counted)
            await rig.caught_up(other)
            await pass_time(1.0)
        assert 0 < log.log_end_offset < 10 and max(appends) <= 262_144
        rig.follow(partition)
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_records_that_were_requested_in_an_earlier_epoch_are_not_used(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append()
        rule = rig.broker.on(FetchRequest, stall=True)
        rig.follow(partition)
        await rule.reached()
        theirs.batches, theirs.entries, theirs.log_end_offset = [], [], 0
        theirs.lead(2)
        theirs.append(1, value=b"other")
        rig.follow(partition, 2)
        await pass_time(0.1)
        rule.release()
        await rig.until(lambda: partition.high_watermark == 1)
        await rig.caught_up(partition)
        assert rig.fetchers.bytes_in == len(theirs.batches[0].data)

    run(tmp_path, story)


# Connections.


def test_lost_connection_is_made_again_and_names_all_partitions(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.log_of(partition).append()
        rig.follow(partition)
        await rig.caught_up(partition)
        rig.broker.nodes[2].disconnect()
        rig.log_of(partition).append()
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_leader_without_an_address_is_fetched_when_it_is_alive_again(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.follow(partition)
        await rig.caught_up(partition)
        rig.live.discard(2)
        rig.fetchers.brokers_changed()
        count = len(rig.leaders[2].fetches)
        rig.log_of(partition).append()
        await pass_time(5.0)
        assert len(rig.leaders[2].fetches) == count
        rig.live.add(2)
        rig.fetchers.brokers_changed()
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_leader_that_does_not_respond_is_fetched_again_after_the_timeout(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.follow(partition)
        await rig.caught_up(partition)
        rig.broker.nodes[2].freeze()
        await pass_time(4.0)
        rig.log_of(partition).append()
        rig.broker.nodes[2].thaw()
        await rig.caught_up(partition)

    run(tmp_path, story, replica_socket_timeout_ms="1000")


def test_full_disk_is_retried_and_an_offline_directory_fails_the_partition(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.follow(partition)
        await rig.caught_up(partition)
        log = partition.log
        assert log is not None
        rig.disk.fail("write", errno.ENOSPC)
        rig.log_of(partition).append()
        rig.moved()
        await rig.caught_up(partition)
        log.fail()
        rig.log_of(partition).append()
        rig.moved()
        await rig.until(lambda: rig.state(partition) is FetchState.FAILED)

    run(tmp_path, story)


def test_partition_that_is_stopped_by_an_error_inside_its_append_is_not_fetched_again(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition, other = await rig.partition(0), await rig.partition(1)
        for each in (partition, other):
            rig.log_of(each).append()

        def stopping(self: Follower, _batches: memoryview) -> FollowerAppend:
            rig.stop(partition)
            raise ValueError("in an append")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Follower, "append_replicated", stopping)
            rig.follow(partition)
            await rig.until(lambda: rig.state(partition) is None)
        rig.follow(other)
        await rig.caught_up(other)
        await pass_time(2.0)
        asked = [
            part.partition
            for fetch in rig.leaders[2].fetches[1:]
            for topic in fetch.topics
            for part in topic.partitions
        ]
        assert set(asked) == {1}
        assert [str(error) for _, error in rig.raised] == ["in an append"]

    run(tmp_path, story, expects_errors=True)
