"""Commits of offsets: order, retries, members that lose partitions; and reading committed offsets."""

import pytest
from kafkalite_sdk.consumer.offsets.commits import Commits
from kafkalite_sdk.consumer.offsets.committed_offsets import CommittedOffsets
from kafkalite_sdk.membership.settings import MemberIdentity
from kafkalite_sdk.values import OffsetAndMetadata

from kafkalite.errors import KafkaConnectionError, KafkaErrorCode, KafkaTimeoutError, error_for
from kafkalite.model import TopicPartition
from kafkalite.protocol.messages.offset_commit import OffsetCommitResponse
from kafkalite.protocol.messages.offset_fetch import OffsetFetchResponse

A, B, C = (TopicPartition("t", number) for number in range(3))
CommitTopic = OffsetCommitResponse.OffsetCommitResponseTopic
FetchGroup = OffsetFetchResponse.OffsetFetchResponseGroup
FetchTopic = FetchGroup.OffsetFetchResponseTopics
REBALANCED = error_for(KafkaErrorCode.REBALANCE_IN_PROGRESS)


MEMBER = MemberIdentity("g", 3, "m", None)


@pytest.fixture
def commits():
    return Commits("g", retry_backoff_s=0.1)


@pytest.fixture
def committed():
    return CommittedOffsets("g", retry_backoff_s=0.1, retry_backoff_max_s=0.4)


@pytest.fixture
def outcomes():
    return []


def commit(commits, outcomes, offsets, deadline=60.0):
    commits.commit({each: OffsetAndMetadata(offset) for each, offset in offsets.items()}, deadline, outcomes.append)


def request(machine, now=0.0):
    (call,) = machine.requests(now, MEMBER) if isinstance(machine, Commits) else machine.requests(now)
    return call


def response(call, **codes):
    partitions = [
        CommitTopic.OffsetCommitResponsePartition(
            partition_index=each.partition, error_code=codes.get("abc"[each.partition], 0)
        )
        for each in call.offsets
    ]
    return OffsetCommitResponse(topics=[CommitTopic(name="t", partitions=partitions)])


def sent(call):
    return {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in call.request.topics
        for each in topic.partitions
    }


def test_request_names_the_member_and_the_offsets(commits, outcomes):
    commits.commit({A: OffsetAndMetadata(7, "note", 2)}, 60.0, outcomes.append)
    call = request(commits)
    assert (call.request.group_id, call.request.generation_id_or_member_epoch, call.request.member_id) == ("g", 3, "m")
    (partition,) = call.request.topics[0].partitions
    assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (
        7,
        "note",
        2,
    )
    commits.answered(call, response(call), 0.0)
    assert outcomes == [None] and commits.idle


def test_commits_behind_an_open_one_leave_together_with_the_latest_offsets(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    call = request(commits)
    commit(commits, outcomes, {A: 2, B: 5})
    commit(commits, outcomes, {A: 3})
    assert not list(commits.requests(0.0, MEMBER))
    commits.answered(call, response(call), 0.0)
    assert sent(request(commits)) == {A: 3, B: 5}


def test_retry_never_replaces_a_newer_offset(commits, outcomes):
    commit(commits, outcomes, {A: 1, B: 1})
    call = request(commits)
    commit(commits, outcomes, {A: 2})
    commits.answered(call, response(call, a=KafkaErrorCode.NOT_COORDINATOR, b=KafkaErrorCode.NOT_COORDINATOR), 0.0)
    assert commits.coordinator_lost and commits.needs_coordinator
    assert sent(request(commits, 1.0)) == {A: 2, B: 1}


def test_commit_is_retried_while_the_coordinator_loads(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    call = request(commits)
    commits.answered(call, response(call, a=KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 1.0)
    assert not commits.coordinator_lost and not list(commits.requests(1.05, MEMBER))
    assert commits.wake_at(1.05) == pytest.approx(1.1)
    call = request(commits, 1.1)
    commits.answered(call, response(call), 1.1)
    assert outcomes == [None]


def test_only_failed_partitions_are_sent_again(commits, outcomes):
    commit(commits, outcomes, {A: 1, B: 2})
    call = request(commits)
    commits.answered(call, response(call, b=KafkaErrorCode.REQUEST_TIMED_OUT), 0.0)
    assert sent(request(commits, 1.0)) == {B: 2}


@pytest.mark.parametrize("code", [KafkaErrorCode.ILLEGAL_GENERATION, KafkaErrorCode.UNKNOWN_MEMBER_ID])
def test_fenced_member_is_reported_to_the_membership_and_to_the_caller(commits, outcomes, code):
    commit(commits, outcomes, {A: 1})
    call = request(commits)
    commits.answered(call, response(call, a=code), 0.0)
    assert commits.member_error == (MEMBER, code) and outcomes[0].code == code and "t-0" in str(outcomes[0])


def test_stale_member_epoch_is_retried_with_the_new_epoch(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    call = request(commits)
    commits.answered(call, response(call, a=KafkaErrorCode.STALE_MEMBER_EPOCH), 0.0)
    assert commits.member_error == (MEMBER, KafkaErrorCode.STALE_MEMBER_EPOCH) and not outcomes
    (call,) = commits.requests(1.0, MEMBER._replace(generation=4))
    assert call.request.generation_id_or_member_epoch == 4


STALE = KafkaErrorCode.STALE_MEMBER_EPOCH


def test_commit_of_a_partition_with_another_owner_fails_with_its_response(commits, outcomes):
    commit(commits, outcomes, {A: 1, B: 1})
    call = request(commits)
    commits.answered(call, response(call, b=STALE), 0.0)
    (error,) = outcomes
    assert error.code == STALE and "t-1" in str(error) and "another member owns" in str(error)
    assert commits.idle, "the partition that is owned is stored"


def test_commit_with_the_epoch_of_the_member_fails_with_the_next_heartbeat(commits, outcomes):
    commit(commits, outcomes, {B: 1})
    call = request(commits)
    commits.answered(call, response(call, b=STALE), 5.0)
    assert not list(commits.requests(6.0, MEMBER, 4.0)) and not outcomes, "the heartbeat is older than the error"
    commit(commits, outcomes, {A: 1})
    assert not list(commits.requests(6.0, MEMBER, 4.0)), "a retry must not replace a newer offset"
    (call,) = commits.requests(6.0, MEMBER, 5.5)
    assert sent(call) == {A: 1} and [error.code for error in outcomes] == [STALE]
    commits.answered(call, response(call), 6.0)
    assert outcomes[1:] == [None] and commits.idle


def test_commit_that_is_stale_in_each_new_epoch_fails(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    for epoch in (3, 4):
        (call,) = commits.requests(epoch, MEMBER._replace(generation=epoch), epoch)
        commits.answered(call, response(call, a=STALE), epoch)
    assert not list(commits.requests(5.0, MEMBER._replace(generation=4), 5.0))
    assert [error.code for error in outcomes] == [STALE] and commits.idle


def test_commit_of_a_deleted_topic_fails_after_three_attempts(commits, outcomes):
    commit(commits, outcomes, {A: 1, B: 1})
    for attempt in range(3):
        assert not outcomes
        call = request(commits, float(attempt))
        commits.answered(call, response(call, a=KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION), float(attempt))
    assert outcomes[0].code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION and commits.idle


def test_lost_request_is_retried_at_a_new_coordinator(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    commits.lost(request(commits), KafkaConnectionError("gone"), 0.0)
    assert commits.coordinator_lost
    commits.lost(request(commits, 1.0), error_for(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED), 1.0)
    assert outcomes[0].code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED and commits.idle


def test_commit_expires_while_it_waits_and_while_its_request_is_open(commits, outcomes):
    commit(commits, outcomes, {A: 1}, deadline=5.0)
    call = request(commits)
    commit(commits, outcomes, {B: 1}, deadline=6.0)
    assert commits.wake_at(0.0) == 5.0
    commits.expire(6.0)
    assert all(isinstance(each, KafkaTimeoutError) for each in outcomes) and len(outcomes) == 2
    commits.answered(call, response(call), 6.0)
    assert len(outcomes) == 2 and commits.idle


def test_partition_that_was_taken_away_is_not_committed_again(commits, outcomes):
    commit(commits, outcomes, {A: 1, B: 1})
    call = request(commits)
    commit(commits, outcomes, {A: 2})
    commits.revoked([A], REBALANCED)
    assert outcomes == [REBALANCED]
    commits.answered(call, response(call, b=KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS), 0.0)
    assert sent(request(commits, 1.0)) == {B: 1}


def test_commit_whose_partitions_were_taken_away_ends_with_its_lost_request(commits, outcomes):
    commit(commits, outcomes, {A: 1})
    call = request(commits)
    commits.revoked([A], REBALANCED)
    commits.lost(call, KafkaConnectionError("gone"), 0.0)
    assert outcomes == [REBALANCED] and commits.idle


def test_commits_and_questions_without_coordinator_fail(commits, committed, outcomes):
    denied = error_for(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED)
    commit(commits, outcomes, {A: 1})
    committed.fetch([A], outcomes.append)
    commits.fail(denied)
    committed.fail(denied)
    assert outcomes == [denied, denied] and commits.idle and not committed.needs_coordinator


def test_commit_of_nothing_succeeds_at_once(commits, outcomes):
    commit(commits, outcomes, {})
    assert outcomes == [None] and commits.idle


def offsets_response(code=0, **offsets):
    partitions = [
        FetchTopic.OffsetFetchResponsePartitions(
            partition_index="abc".index(name),
            committed_offset=offset,
            committed_leader_epoch=2,
            metadata="n",
            error_code=error,
        )
        for name, (error, offset) in offsets.items()
    ]
    topics = [FetchTopic(name="t", partitions=partitions)]
    return OffsetFetchResponse(groups=[FetchGroup(group_id="g", error_code=code, topics=topics)])


def test_questions_are_merged_into_one_request(committed, outcomes):
    committed.fetch([A, B], outcomes.append)
    committed.fetch([B, C], outcomes.append)
    call = request(committed)
    for topics in (call.request.topics, call.request.groups[0].topics):
        assert [(each.name, each.partition_indexes) for each in topics] == [("t", [0, 1, 2])]
    assert call.request.require_stable
    committed.answered(call, offsets_response(a=(0, 7), b=(0, -1), c=(0, 9)), 0.0)
    assert outcomes == [
        {A: OffsetAndMetadata(7, "n", 2), B: None},
        {B: None, C: OffsetAndMetadata(9, "n", 2)},
    ]


def test_response_without_groups_is_accepted(committed, outcomes):
    committed.fetch([A], outcomes.append)
    single = OffsetFetchResponse.OffsetFetchResponseTopic
    partition = single.OffsetFetchResponsePartition(partition_index=0, committed_offset=4, metadata=None)
    response = OffsetFetchResponse(topics=[single(name="t", partitions=[partition])])
    committed.answered(request(committed), response, 0.0)
    assert outcomes == [{A: OffsetAndMetadata(4, "", -1)}]


@pytest.mark.parametrize(
    ("code", "lost"),
    [(KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False), (KafkaErrorCode.NOT_COORDINATOR, True)],
)
def test_question_is_retried_while_the_coordinator_loads_or_moves(committed, outcomes, code, lost):
    committed.fetch([A], outcomes.append)
    committed.answered(request(committed), offsets_response(code), 0.0)
    assert committed.coordinator_lost == lost and committed.needs_coordinator
    assert committed.wake_at(0.05) == pytest.approx(0.1)
    committed.answered(request(committed, 0.1), offsets_response(a=(0, 1)), 0.1)
    assert outcomes == [{A: OffsetAndMetadata(1, "n", 2)}]


def test_only_the_question_with_an_unstable_offset_is_repeated(committed, outcomes):
    committed.fetch([A], outcomes.append)
    committed.fetch([B], outcomes.append)
    unstable = KafkaErrorCode.UNSTABLE_OFFSET_COMMIT
    committed.answered(request(committed), offsets_response(a=(unstable, -1), b=(0, 2)), 0.0)
    assert outcomes == [{B: OffsetAndMetadata(2, "n", 2)}]
    (topic,) = request(committed, 1.0).request.topics
    assert topic.partition_indexes == [0]


def test_permanent_error_ends_the_question(committed, outcomes):
    committed.fetch([A], outcomes.append)
    committed.lost(request(committed), KafkaConnectionError("gone"), 0.0)
    committed.answered(request(committed, 1.0), offsets_response(KafkaErrorCode.GROUP_AUTHORIZATION_FAILED), 1.0)
    assert outcomes[0].code == KafkaErrorCode.GROUP_AUTHORIZATION_FAILED and not committed.needs_coordinator


def test_a_topic_with_errors_is_requested_with_growing_pauses_and_delays_no_other(committed, outcomes):
    denied = offsets_response(a=(KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED, -1))
    now = 0.0
    for pause in (0.1, 0.2, 0.4, 0.4):
        committed.fetch([A], outcomes.append)
        committed.answered(request(committed, now), denied, now)
        assert outcomes.pop().code == KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED
        again = committed.fetch([A], outcomes.append)
        assert not list(committed.requests(now))
        assert committed.wake_at(now) == pytest.approx(now + pause)
        other = committed.fetch([TopicPartition("u", 0)], outcomes.append)
        call = request(committed, now)
        assert [topic.name for topic in call.request.topics] == ["u"]
        committed.cancel(other)
        committed.answered(call, offsets_response(), now)
        committed.cancel(again)
        now += pause
    committed.fetch([A], outcomes.append)
    committed.answered(request(committed, now), offsets_response(a=(0, 1)), now)
    assert outcomes == [{A: OffsetAndMetadata(1, "n", 2)}]
    committed.fetch([A], outcomes.append)
    assert len(list(committed.requests(now))) == 1


def test_cancelled_question_is_not_answered(committed, outcomes):
    waiting, opened = committed.fetch([A], outcomes.append), committed.fetch([B], outcomes.append)
    committed.cancel(waiting)
    call = request(committed)
    committed.cancel(opened)
    committed.answered(call, offsets_response(b=(0, 2)), 0.0)
    assert not outcomes and not committed.needs_coordinator
