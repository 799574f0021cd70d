"""ListGroups+, key 10000, v0. Groups of every kind, with their members and what these own.

The generation of a consumer group is its epoch. A group that is not there is GROUP_ID_NOT_FOUND, with state Dead.
"""

from functools import partial

from kafkalite.cluster.image import ClusterImage
from kafkalite.coordinators.group_settings import partitions_of
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest, ListGroupsPlusResponse
from kafkalite.server.call import Call
from kafkalite.state.classic_group import Group as ClassicGroup
from kafkalite.state.consumer_state import ConsumerGroup
from kafkalite.state.group_shard import GroupShard
from kafkalite.state.registered_requests import GroupSeen

NO_GENERATION, NO_TIMEOUT = -1, -1
DEAD, EMPTY = "Dead", "Empty"

Group = ListGroupsPlusResponse.ListedGroup
Member = Group.Member
OwnedTopic = Member.OwnedTopic


def list_groups_plus(call: Call, request: ListGroupsPlusRequest) -> None:
    """Those that are named, or all."""
    node = call.own_node
    image = call.broker.image
    if request.groups:
        names = list(dict.fromkeys(request.groups))
        call.broker.groups.look_each(
            names,
            [partial(listed, node, image, name) for name in names],
            [partial(bare, node, name, DEAD) for name in names],
            call.answering(lambda groups: ListGroupsPlusResponse(groups=groups)),
        )
        return

    def found(shards: list[list[Group]], error: int) -> None:
        groups = [group for each in shards for group in each]
        if error:  # there is no other place for it
            groups = [bare(node, "", DEAD, error)]
        call.answer(ListGroupsPlusResponse(groups=groups))

    call.broker.groups.look_everywhere(partial(all_listed, node, image), call.later(found))


def all_listed(node: Node, image: ClusterImage, shard: GroupShard) -> list[Group]:
    """Every group of a shard."""
    return [listed(node, image, name, shard) for name in shard.names()]


def listed(node: Node, image: ClusterImage, name: str, shard: GroupShard) -> Group:
    """One group as its shard knows it."""
    consumers = shard.consumers.groups.get(name)
    if consumers is not None:
        return of_consumers(bare(node, name, consumers.state.value), image, consumers, shard)
    registered = shard.registered.describe(name)
    if registered is not None:
        return of_registered(bare(node, name, registered.state), registered)
    classic = shard.classic.get(name)
    if classic is not None:
        return of_classic(bare(node, name, classic.state.value), classic)
    if name in shard.offsets:
        return bare(node, name, EMPTY)
    return bare(node, name, DEAD, KafkaErrorCode.GROUP_ID_NOT_FOUND)


def of_consumers(shown: Group, image: ClusterImage, group: ConsumerGroup, shard: GroupShard) -> Group:
    """A consumer group."""
    shown.generation_id = group.epoch
    shown.topics = sorted(group.subscribed_topics())
    shown.session_timeout_ms = shard.consumers.settings_of(group.group_id).session_timeout_ms
    for member_id in sorted(group.members):
        owned = []
        for topic_id, epochs in group.current(member_id).assigned.items():
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                owned.append(OwnedTopic(name=topic.name, partitions=sorted(epochs)))
        shown.members.append(Member(consumer_id=member_id, owned_partitions=owned))
    return shown


def of_registered(shown: Group, group: GroupSeen) -> Group:
    """A group whose members have registered, or that is only defined yet."""
    shown.generation_id = group.generation
    shown.topics = list(group.topics)
    shown.session_timeout_ms = group.session_timeout_ms
    for member in group.members:
        owned = [OwnedTopic(name=name, partitions=list(partitions)) for name, partitions in member.owned.items()]
        shown.members.append(Member(consumer_id=member.consumer_id, owned_partitions=owned))
    return shown


def of_classic(shown: Group, group: ClassicGroup) -> Group:
    """A classic group. What a member owns is what the leader gave it, where that can be read."""
    members = list(group.members.all.values())
    shown.generation_id = group.generation
    shown.topics = sorted(group.topics or ())
    shown.session_timeout_ms = max((member.session_timeout_ms for member in members), default=NO_TIMEOUT)
    for member in members:
        owned: dict[str, list[int]] = {}
        for topic, partition in sorted(partitions_of(member.assignment) or ()):
            owned.setdefault(topic, []).append(partition)
        topics = [OwnedTopic(name=name, partitions=partitions) for name, partitions in owned.items()]
        shown.members.append(Member(consumer_id=member.member_id, owned_partitions=topics))
    return shown


def bare(node: Node, name: str, state: str, error: int = 0) -> Group:
    """A group without members, coordinated here."""
    return Group(
        error_code=error,
        group_id=name,
        group_state=state,
        generation_id=NO_GENERATION,
        members=[],
        topics=[],
        session_timeout_ms=NO_TIMEOUT,
        controller_id=node.broker_id,
        controller_host=node.host,
        controller_port=node.port,
    )
