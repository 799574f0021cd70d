"""Members of the classic protocol in consumer groups count in the bound on the memory of members."""

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.state.groups.consumer.classic_member_memory import memory_of_group
from kafkalite.state.groups.consumer.requests import LEAVE_EPOCH
from kafkalite.state.groups.member_memory import MEMBER_BYTES
from kafkalite.state.groups.records import GroupDeleted
from tests.unit.state.groups.test_conversion import Story, mixed, subscription, two_members


def counted(story: Story) -> int:
    """The memory of the shard, which is that of its consumer groups alone."""
    held = story.machine.classic.memory.held
    assert held == sum(memory_of_group(group) for group in story.machine.consumers.groups.values())
    return held


def test_members_of_the_classic_protocol_count_in_a_consumer_group() -> None:
    story = mixed()
    both = counted(story)
    assert both > 2 * MEMBER_BYTES
    story.check_replay()
    assert story.shard.replayed().classic.memory.held == both
    story.leave("a")
    one = counted(story)
    assert MEMBER_BYTES < one < both
    assert story.fast_heartbeat("b").error == Error.NONE  # it speaks the consumer protocol from now on
    assert counted(story) == 0


def test_a_group_that_becomes_classic_again_counts_its_members_once() -> None:
    story = Story(two_members())
    before = story.machine.classic.memory.held
    story.fast_heartbeat("m")
    story.fast_heartbeat("m", LEAVE_EPOCH)
    assert "g" in story.machine.classic.groups
    assert story.machine.classic.memory.held == before


def test_a_classic_join_of_a_consumer_group_beyond_the_memory_limit_is_rejected() -> None:
    story = mixed()
    total = story.machine.classic.memory.total
    total.limit = counted(story)
    since = len(story.shard.log)
    large = (("range", subscription("orders", *map(str, range(100)))),)
    assert story.join("", protocols=large, member_id_required=False).error == Error.GROUP_MAX_SIZE_REACHED
    assert story.join("a", protocols=large).error == Error.GROUP_MAX_SIZE_REACHED
    assert story.written(since) == []
    assert story.join("a").error == Error.NONE, "a member that does not grow stays"
    total.limit *= 2
    assert story.join("", protocols=large, member_id_required=False).error == Error.NONE


def test_a_deleted_consumer_group_releases_its_memory() -> None:
    story = mixed()
    story.machine.consumers.apply(GroupDeleted("g", "consumer"))
    assert counted(story) == 0
