"""A follower fetches the records of its leader: what it requests, and what its log and its readers have."""

import logging
from dataclasses import replace
from pathlib import Path

import pytest

from kafkalite.cluster.partition.delayed_fetch import DelayedFetch
from kafkalite.config.broker import BrokerConfig
from kafkalite.config.topic import TopicConfig
from kafkalite.errors import KafkaErrorCode
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.state.follower.partition_fetch import FetchState
from kafkalite.testing.virtual_loop import pass_time
from tests.story.fetchers.rig import EPOCH, FLUSHED, OTHER, OWN, FollowerRig, content, run


def test_follower_catches_up_and_then_receives_each_append(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        for _ in range(20):
            theirs.append(3)
        rig.follow(partition)
        assert rig.fetchers.lag_of(partition) == -1
        await rig.caught_up(partition)
        for _ in range(3):
            theirs.append()
            rig.moved()
            await rig.caught_up(partition)
        assert rig.fetchers.lag_of(partition) == 0
        assert rig.fetchers.bytes_in == sum(len(each.data) for each in theirs.batches)

    run(tmp_path, story)


def test_requests_have_the_fields_of_a_replica(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append(5)
        rig.follow(partition)
        await rig.caught_up(partition)
        await rig.until(lambda: len(rig.leaders[2].fetches) >= 2)
        first, second = rig.leaders[2].fetches[:2]
        assert first.replica_state is not None
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (OWN, EPOCH)
        assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10_485_760)
        assert (first.session_id, first.session_epoch, second.session_epoch) == (0, 0, 1)
        asked = [request.topics[0].partitions[0] for request in (first, second)]
        fields = [
            (each.fetch_offset, each.last_fetched_epoch, each.log_start_offset, each.current_leader_epoch)
            for each in asked
        ]
        assert fields == [(0, -1, 0, 1), (5, 1, 0, 1)]
        assert asked[0].partition_max_bytes == 1_048_576
        (version,) = {each.version for each in rig.broker.log if each.api_key == 1}
        assert version == 17

    run(tmp_path, story)


def test_idle_session_names_no_partition(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partitions = [await rig.partition(index) for index in range(20)]
        for partition in partitions:
            rig.follow(partition)
        await pass_time(3.0)
        fetches = rig.leaders[2].fetches
        assert len(fetches[0].topics[0].partitions) == 20, "all partitions of an iteration are in one request"
        assert 5 <= len(fetches) <= 8 and all(not each.topics for each in fetches[1:])
        rig.log_of(partitions[7]).append()
        rig.moved()
        await rig.caught_up(partitions[7])
        await rig.until(lambda: bool(fetches[-1].topics))
        assert [each.partition for each in fetches[-1].topics[0].partitions] == [7]
        assert {id(each.connection) for each in rig.broker.log} and len(
            {each.connection for each in rig.broker.log}
        ) == 1

    run(tmp_path, story)


def test_leader_that_opens_no_session_gets_all_partitions_each_time(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        rig.leaders[2].sessions = False
        partitions = [await rig.partition(index) for index in range(2)]
        for partition in partitions:
            rig.log_of(partition).append()
            rig.follow(partition)
        for partition in partitions:
            await rig.caught_up(partition)
        assert {each.session_epoch for each in rig.leaders[2].fetches} == {0}

    run(tmp_path, story)


def test_evicted_session_is_opened_again_at_once(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.follow(partition)
        await rig.until(lambda: len(rig.leaders[2].fetches) == 3)
        rig.leaders[2].session_id += 5
        rig.log_of(partition).append()
        rig.moved()
        await rig.caught_up(partition)

    run(tmp_path, story)


def test_high_watermark_follows_after_the_records_and_wakes_readers(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.high_watermark = 0
        theirs.append(4)
        rig.follow(partition)
        await rig.caught_up(partition)
        woken: list[int] = []
        DelayedFetch([partition], 1, lambda: woken.append(partition.high_watermark)).watch(rig.clock, 60)
        theirs.high_watermark = 3
        rig.moved()
        await rig.until(lambda: bool(woken))
        assert woken == [3] and partition.log is not None and partition.log.high_watermark == 3

    run(tmp_path, story)


def test_log_start_of_the_leader_moves_and_the_leader_learns_it(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        for _ in range(4):
            theirs.append()
        rig.follow(partition)
        await rig.caught_up(partition)
        theirs.start_offset = 2
        rig.moved()
        log = partition.log
        assert log is not None
        await rig.until(lambda: log.log_start_offset == 2)
        await rig.until(lambda: bool(rig.leaders[2].fetches[-1].topics))
        assert rig.leaders[2].fetches[-1].topics[0].partitions[0].log_start_offset == 2

    run(tmp_path, story)


def test_large_batch_above_every_limit_is_accepted(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append(1, size=700_000)
        theirs.append(1, size=700_000)
        theirs.append()
        rig.follow(partition)
        await rig.caught_up(partition)

    run(tmp_path, story, replica_fetch_max_bytes="1000", replica_fetch_response_max_bytes="1000")


def test_incomplete_last_batch_is_dropped_and_fetched_again(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        for _ in range(10):
            theirs.append(5)
        rig.follow(partition)
        await rig.caught_up(partition)
        assert len(rig.leaders[2].fetches) > 3

    run(tmp_path, story, replica_fetch_max_bytes="1500")


@pytest.mark.parametrize("fetchers", ["1", "3"])
def test_partitions_are_spread_over_the_fetchers_of_a_leader(tmp_path: Path, fetchers: str) -> None:
    async def story(rig: FollowerRig) -> None:
        partitions = [await rig.partition(index) for index in range(12)]
        for partition in partitions:
            rig.log_of(partition).append()
            rig.follow(partition)
        for partition in partitions:
            await rig.caught_up(partition)

    if fetchers == "1":
        run(tmp_path, story)
        return

    async def spread(rig: FollowerRig) -> None:
        rig.leaders[2].sessions = False  # one scripted leader serves several connections
        await story(rig)
        assert len({each.connection for each in rig.broker.log if each.api_key == 1}) == 3

    run(tmp_path, spread, num_replica_fetchers=fetchers)


def test_more_fetchers_are_used_at_run_time(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        rig.leaders[2].sessions = False
        partitions = [await rig.partition(index) for index in range(12)]
        for partition in partitions:
            rig.follow(partition)
        await pass_time(1.0)
        before = {each.connection for each in rig.broker.log}
        rig.config = BrokerConfig(static={**rig.config.static, "num.replica.fetchers": "2"})
        rig.fetchers.configure()
        for partition in partitions:
            rig.log_of(partition).append()
        rig.moved()
        for partition in partitions:
            await rig.caught_up(partition)
        assert len(before) == 1 and len({each.connection for each in rig.broker.log}) == 2

    run(tmp_path, story)


# Flush before the acknowledgement.


def test_next_fetch_leaves_after_the_fsync_and_other_partitions_do_not_wait(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        rig.leaders[2].sessions = False
        plain, flushed = await rig.partition(0), await rig.partition(0, "f", OTHER, FLUSHED)
        for partition in (plain, flushed):
            rig.log_of(partition).append()
            rig.follow(partition)
        log = flushed.log
        assert log is not None
        rig.jobs.held = True
        await rig.until(lambda: log.log_end_offset == 1)
        await pass_time(2.0)
        assert rig.state(flushed) is FetchState.FLUSHING
        named = [each.topics[0] for each in rig.leaders[2].fetches if bytes(each.topics[0].topic_id) == OTHER]
        assert [each.partitions[0].fetch_offset for each in named] == [0], "the leader does not know of the records yet"
        rig.log_of(plain).append()
        rig.moved()
        await rig.caught_up(plain)
        rig.jobs.release()
        await rig.until(lambda: log.recovery_point == 1)
        await rig.caught_up(flushed)
        named = [each.topics[0] for each in rig.leaders[2].fetches if bytes(each.topics[0].topic_id) == OTHER]
        assert named[-1].partitions[0].fetch_offset == 1

    run(tmp_path, story)


def test_records_of_an_earlier_fetcher_are_flushed_before_another_leader_learns_them(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition(config=FLUSHED)
        rig.log_of(partition).append()
        rig.follow(partition)
        log = partition.log
        assert log is not None
        rig.jobs.held = True
        await rig.until(lambda: log.log_end_offset == 1)
        rig.log_of(partition, 3).lead(1)
        rig.log_of(partition, 3).append()
        rig.log_of(partition, 3).lead(2)
        rig.follow(partition, 2, leader=3)
        await pass_time(2.0)
        assert rig.leaders[3].fetches == [] and rig.state(partition) is FetchState.FLUSHING
        rig.jobs.release()
        await rig.until(lambda: bool(rig.leaders[3].fetches))
        await rig.caught_up(partition, 3)
        assert rig.leaders[3].fetches[0].topics[0].partitions[0].fetch_offset == 1

    run(tmp_path, story)


def test_topic_that_requires_a_flush_later_changes_its_session(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        rig.follow(partition)
        rig.log_of(partition).append()
        rig.moved()
        await rig.caught_up(partition)
        partition.configure(replace(TopicConfig(), flush_messages=1))
        rig.leaders[2].sessions = False
        for _ in range(2):
            rig.log_of(partition).append()
            rig.moved()
            await rig.caught_up(partition)
        assert partition.log is not None and partition.log.recovery_point == 3

    run(tmp_path, story)


# Bad input.


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def test_wrong_crc_is_reported_and_fetched_again_and_never_appended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: FollowerRig) -> None:
        partition, other = await rig.partition(0), await rig.partition(1)
        theirs = rig.log_of(partition)
        for _ in range(3):
            theirs.append()
        good = theirs.batches[1]
        theirs.batches[1] = good._replace(data=damaged(good.data))
        rig.log_of(other).append()
        rig.follow(partition)
        rig.follow(other)
        log = partition.log
        assert log is not None
        await rig.caught_up(other)
        await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)
        assert log.log_end_offset == 1 and content(log) == theirs.batches[0].data
        await pass_time(5.0)
        assert log.log_end_offset == 1
        theirs.batches[1] = good
        await rig.caught_up(partition)

    with caplog.at_level(logging.WARNING, "kafkalite.cluster.fetchers"):
        run(tmp_path, story)
    (text,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "t-0" in text and "leader 2" in text and "offset 1" in text and "wrong CRC" in text


def test_offsets_that_go_back_are_reported_and_not_appended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append(3)
        again = theirs.batches[0]
        theirs.append(3)
        theirs.batches.insert(1, again)
        rig.follow(partition)
        log = partition.log
        assert log is not None
        await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)
        assert log.log_end_offset == 3 and content(log) == again.data
        del theirs.batches[1]
        await rig.caught_up(partition)

    with caplog.at_level(logging.WARNING, "kafkalite.cluster.fetchers"):
        run(tmp_path, story)
    assert "offsets 0 to 2 where 3 is next" in caplog.text and "leader 2" in caplog.text


def test_unasked_partition_is_reported_and_the_response_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: FollowerRig) -> None:
        partition, unasked = await rig.partition(0), await rig.partition(1)
        rig.log_of(partition).append()
        rig.log_of(unasked).append()

        def edit(response: FetchResponse) -> None:
            theirs = rig.log_of(unasked)
            asked = FetchRequest.FetchTopic.FetchPartition(
                partition=1, current_leader_epoch=1, fetch_offset=0, partition_max_bytes=1000
            )
            response.responses[0].partitions.append(theirs.read(asked, 1000))

        rig.broker.on(FetchRequest, edit=edit)
        rig.follow(partition)
        await rig.caught_up(partition)
        assert unasked.log is not None and unasked.log.log_end_offset == 0

    with caplog.at_level(logging.WARNING, "kafkalite.cluster.fetchers"):
        run(tmp_path, story)
    assert "leader 2: the response cannot be used: it has partition 1 of the topic id " in caplog.text
    assert " with the high watermark 1, which was not requested" in caplog.text


def test_expected_errors_are_retried_with_growing_pauses_and_not_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(rig: FollowerRig) -> None:
        partition, other = await rig.partition(0), await rig.partition(1)
        theirs = rig.log_of(partition)
        theirs.append()
        rig.log_of(other).append()
        theirs.error = KafkaErrorCode.UNKNOWN_LEADER_EPOCH
        rig.follow(partition)
        rig.follow(other)
        await rig.until(lambda: rig.state(partition) is FetchState.DELAYED)
        await rig.caught_up(other)
        theirs.error = 0
        await rig.caught_up(partition)

    with caplog.at_level(logging.WARNING, "kafkalite.cluster.fetchers"):
        run(tmp_path, story)
    assert caplog.records == []


def test_fenced_follower_waits_for_the_next_leader_epoch(tmp_path: Path) -> None:
    async def story(rig: FollowerRig) -> None:
        partition = await rig.partition()
        theirs = rig.log_of(partition)
        theirs.append()
        theirs.lead(2)
        rig.follow(partition, 1)
        await rig.until(lambda: rig.state(partition) is FetchState.FAILED)
        assert rig.fetchers.failed_partitions == 1
        await pass_time(5.0)
        assert len(rig.leaders[2].fetches) == 1
        rig.follow(partition, 2)
        await rig.caught_up(partition)
        assert rig.fetchers.failed_partitions == 0

    run(tmp_path, story)
