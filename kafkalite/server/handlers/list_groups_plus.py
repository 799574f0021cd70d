"""ListGroups+, key 10000, v0: returns groups of every type with their members and the partitions that these own.

The generation of a consumer group is its epoch. A group that does not exist has GROUP_ID_NOT_FOUND and the state Dead.

In a cluster any broker answers for all groups: it asks their coordinators. An entry without a group id names a broker
whose groups are missing in a list of all groups, with the reason: REQUEST_TIMED_OUT, COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any

from kafkalite.callbacks import gather
from kafkalite.cluster.broker_peers import BrokerPeers, CallResult
from kafkalite.cluster.topics.internal_topics import OFFSETS
from kafkalite.coordinators.group.service import Machines
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import Node
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest, ListGroupsPlusResponse
from kafkalite.server.requests.call import OBJECTS_MAX, GroupCall
from kafkalite.server.requests.group_responses import answer_each, build_response, encode_groups, ended, shown_groups
from kafkalite.state.authorizer.acls import AclOperation
from kafkalite.state.groups.group import NO_GENERATION
from kafkalite.state.groups.machine import SIMPLE_GROUP, GroupMachine

NO_TIMEOUT = -1
DEAD = "Dead"
NO_ID = NO_PORT = -1

Group = ListGroupsPlusResponse.ListedGroup
Member = Group.Member
OwnedTopic = Member.OwnedTopic
Put = Callable[[list[Group]], None]


def list_groups_plus(call: GroupCall, request: ListGroupsPlusRequest) -> None:
    """Return the named groups, or all groups."""
    if call.refuse_of_client(of_brokers=request.coordinator_only):
        return
    node, names = call.own_node, list(dict.fromkeys(request.groups))
    peers = None if request.coordinator_only else call.context.peers
    if peers is not None:
        (list_named if names else list_all)(call, peers, names)
    elif names:
        refused = partial(bare, node, state=DEAD)
        answer_each(call, names, partial(describe_group, node), refused, ListGroupsPlusResponse)
    else:
        shown = all_for_brokers(call) if request.coordinator_only else shown_groups(call)
        list_own(call, (), shown)


def all_for_brokers(call: GroupCall) -> Callable[[str], bool]:
    """Return the function that shows all groups to other brokers (ClusterAction), else those of `shown_groups`."""
    authorization = call.authorization
    if authorization is not None and not authorization.allows_cluster(AclOperation.CLUSTER_ACTION, log_denied=False):
        return shown_groups(call)
    return lambda _group: True


def list_own(call: GroupCall, others: Sequence[Group], shown: Callable[[str], bool]) -> None:
    """Return all groups of this broker, and those of other brokers, as far as they are shown."""
    node = call.own_node
    others = [each for each in others if not each.group_id or shown(each.group_id)]
    steps = encode_groups(call, partial(all_listed, node, shown), others)
    objects = call.context.groups.group_count() + len(others)
    call.in_slices(steps, objects, partial(answer_all, call, others))


def answer_all(call: GroupCall, others: Sequence[Group], walked: tuple[list[Any], Machines]) -> None:
    """Send the response when everything that it shows is committed."""
    groups, machines = walked

    def committed(error: int) -> None:
        # there is no other field for the error
        shown = [bare(call.own_node, "", state=DEAD, error=error), *others] if error else groups
        call.answer(ListGroupsPlusResponse(groups=shown))

    call.context.groups.when_committed(machines, call.guard(committed))


def all_listed(node: Node, shown: Callable[[str], bool], machine: GroupMachine) -> Iterator[Group | None]:
    """Yield every group of a shard, None for each that is not shown."""
    for name in machine.names():
        yield describe_group(node, name, machine) if shown(name) else None


def describe_group(node: Node, name: str, machine: GroupMachine) -> Group:
    """Describe a group from its shard."""
    group = machine.registry.get(name)
    if group is None:
        known = name in machine.offsets
        error = KafkaErrorCode.NONE if known else KafkaErrorCode.GROUP_ID_NOT_FOUND
        return bare(node, name, error, state=SIMPLE_GROUP.state if known else DEAD)
    shown, overview = bare(node, name, state=group.state.value), group.overview()
    shown.generation_id = group.generation_id
    shown.topics = list(overview.topics)
    shown.session_timeout_ms = overview.session_timeout_ms
    for member in overview.members:
        owned = [OwnedTopic(name=topic, partitions=list(partitions)) for topic, partitions in member.owned.items()]
        shown.members.append(Member(consumer_id=member.member_id, owned_partitions=owned))
    return shown


def bare(node: Node, name: str, error: int = 0, *, state: str) -> Group:
    """Return a group without members, coordinated by a broker."""
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


# In a cluster.


def list_all(call: GroupCall, peers: BrokerPeers, _names: list[str]) -> None:
    """Return the groups of all coordinators."""
    image = call.context.image
    nodes = {node.broker_id: node for node in call.context.nodes(image, call.connection)}
    topic = image.topics.get(OFFSETS.name)
    partitions = () if topic is None else topic.partitions
    leaders = {each.leader for each in partitions if each.leader > NO_ID} - {call.context.broker_id}
    absent = {replica for each in partitions if each.leader <= NO_ID for replica in each.replicas}
    error = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE
    missing = [bare(Node(each, "", NO_PORT), "", error, state=DEAD) for each in sorted(absent)]
    calls = [partial(ask, peers, nodes.get(each, Node(each, "", NO_PORT)), []) for each in sorted(leaders)]
    gather(
        calls, call.at_others(lambda found: list_own(call, [*chain.from_iterable(found), *missing], shown_groups(call)))
    )


def list_named(call: GroupCall, peers: BrokerPeers, names: list[str]) -> None:
    """Return the named groups, each from its coordinator."""
    find, own = call.context.coordinators(call.connection, OFFSETS.name), call.own_node
    exists = OFFSETS.name in call.context.image.topics
    missing = KafkaErrorCode.COORDINATOR_NOT_AVAILABLE if exists else KafkaErrorCode.GROUP_ID_NOT_FOUND
    by_node: dict[Node, list[str]] = {}
    found: list[Group] = []
    for name in names:
        node = find(name)
        if node is None:
            found.append(bare(Node(NO_ID, "", NO_PORT), name, missing, state=DEAD))
        else:
            by_node.setdefault(node, []).append(name)

    def answer(results: list[list[Group]]) -> None:
        by_name = {group.group_id: group for group in chain(found, *results)}
        ordered = [by_name[name] for name in names]
        call.answer_from(build_response(call, ordered, ListGroupsPlusResponse), len(ordered))

    calls = [
        partial(query_own, call, of_node) if node.broker_id == own.broker_id else partial(ask, peers, node, of_node)
        for node, of_node in by_node.items()
    ]
    gather(calls, call.at_others(answer))


def query_own(call: GroupCall, names: list[str], put: Put) -> None:
    """Describe groups that this broker coordinates."""
    node = call.own_node
    refused = partial(bare, node, state=DEAD)
    steps = call.context.groups.query_each(names, str, partial(describe_group, node), refused, put)
    call.in_slices(steps, len(names), ended)


def ask(peers: BrokerPeers, node: Node, names: list[str], put: Put) -> None:
    """Request groups from their coordinator; no names = all of its groups."""

    def answered(result: CallResult) -> None:
        if result.error:
            put([bare(node, name, result.error, state=DEAD) for name in names or [""]])
            return
        for group in result.response.groups:
            group.controller_id, group.controller_host, group.controller_port = node[:3]
        put(result.response.groups)

    request = ListGroupsPlusRequest(groups=names, coordinator_only=True)
    peers.call(node.broker_id, request, answered, is_list=not names or len(names) > OBJECTS_MAX)
