"""Simulated clients that send invalid requests to groups, and the responses that all of them have received."""

import random
from collections import Counter, defaultdict
from collections.abc import Awaitable
from typing import Any, NamedTuple

from kafkalite.errors import KafkaErrorCode as Error
from kafkalite.protocol.extensions.delete_group import DeleteGroupRequest
from kafkalite.protocol.extensions.list_groups_plus import ListGroupsPlusRequest
from kafkalite.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafkalite.protocol.messages.delete_groups import DeleteGroupsRequest
from kafkalite.protocol.messages.describe_groups import DescribeGroupsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.list_groups import ListGroupsRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.messages.offset_delete import OffsetDeleteRequest
from kafkalite.protocol.messages.offset_fetch import OffsetFetchRequest
from kafkalite.protocol.schema import Request
from tests.kit.members import (
    assignment,
    beat_join,
    beat_plus,
    codes,
    commit,
    create,
    fast_heartbeat,
    fetch,
    fetch_of,
    given,
    heartbeat,
    join,
    leave,
    owned,
    register,
    rewind_to,
    starts,
    sync,
)
from tests.kit.server import Client
from tests.kit.weighted_choice import Operations, WeightedChoice, draw

PARTITIONS = 4
METADATA_MAX = 8
REBALANCE_MS = 20  # the longest rebalance timeout
NOWHERE = bytes(15) + b"\x09"
PATTERNS_SINCE = 1
NO_PATTERNS = ("(", "a{1000}{1000}")
BY_NAME = 9  # the last version of OffsetCommit and OffsetFetch that names topics
CLASSIC, MODERN, OURS, PASSING = "classic", "modern", "registered", "passing"
GROUPS = (CLASSIC, MODERN, OURS, PASSING)
"""By those who mostly come to it. Only `PASSING` is ever deleted, and to `OURS` no other kind of member comes."""

BUSY = {Error.NONE}
MEMBER = BUSY | {Error.UNKNOWN_MEMBER_ID, Error.INVALID_GROUP_ID}
IN_GENERATION = MEMBER | {Error.ILLEGAL_GENERATION, Error.REBALANCE_IN_PROGRESS}
CLASSIC_MEMBER = IN_GENERATION | {Error.FENCED_INSTANCE_ID}
NO_PARTITION = {Error.UNKNOWN_TOPIC_OR_PARTITION, Error.UNKNOWN_TOPIC_ID}
FULL = {Error.GROUP_MAX_SIZE_REACHED}
OF_ANOTHER_KIND = {Error.INCONSISTENT_GROUP_PROTOCOL}
SESSION = {Error.INVALID_SESSION_TIMEOUT}
NOT_FOUND = {Error.GROUP_ID_NOT_FOUND}
ALLOWED: dict[str, set[Error]] = {
    "join": CLASSIC_MEMBER | FULL | OF_ANOTHER_KIND | SESSION | {Error.MEMBER_ID_REQUIRED},
    "sync": CLASSIC_MEMBER | OF_ANOTHER_KIND,
    "beat_classic": CLASSIC_MEMBER,
    "leave": CLASSIC_MEMBER,
    "beat_modern": BUSY
    | FULL
    | NOT_FOUND
    | {
        Error.INVALID_REQUEST,
        Error.UNKNOWN_MEMBER_ID,
        Error.FENCED_MEMBER_EPOCH,
        Error.FENCED_INSTANCE_ID,
        Error.UNRELEASED_INSTANCE_ID,
        Error.UNSUPPORTED_ASSIGNOR,
        Error.INVALID_REGULAR_EXPRESSION,
    },
    "commit": CLASSIC_MEMBER
    | NO_PARTITION
    | NOT_FOUND
    | {Error.STALE_MEMBER_EPOCH, Error.UNSUPPORTED_VERSION, Error.OFFSET_METADATA_TOO_LARGE},
    "fetch": MEMBER | NO_PARTITION | NOT_FOUND | {Error.STALE_MEMBER_EPOCH, Error.ILLEGAL_GENERATION},
    "delete_offsets": MEMBER | NO_PARTITION | NOT_FOUND | {Error.GROUP_SUBSCRIBED_TO_TOPIC, Error.NON_EMPTY_GROUP},
    "delete_groups": BUSY | NOT_FOUND | {Error.INVALID_GROUP_ID, Error.NON_EMPTY_GROUP},
    "delete_group": BUSY | NOT_FOUND | {Error.INVALID_GROUP_ID, Error.NON_EMPTY_GROUP},
    "look": BUSY | NOT_FOUND | {Error.INVALID_GROUP_ID},
    "find": BUSY | {Error.INVALID_REQUEST},
    "rewind": BUSY | NOT_FOUND | {Error.INVALID_GROUP_ID, Error.INVALID_REQUEST, Error.UNKNOWN_TOPIC_OR_PARTITION},
    "create": BUSY
    | SESSION
    | OF_ANOTHER_KIND
    | {
        Error.INVALID_GROUP_ID,
        Error.UNSUPPORTED_ASSIGNOR,
        Error.INVALID_REQUEST,
        Error.INVALID_REGULAR_EXPRESSION,
        Error.INVALID_TOPIC_EXCEPTION,
        Error.NON_EMPTY_GROUP,
    },
    "register": IN_GENERATION
    | FULL
    | SESSION
    | OF_ANOTHER_KIND
    | {
        Error.INVALID_REQUEST,
        Error.INVALID_TOPIC_EXCEPTION,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNRELEASED_INSTANCE_ID,
    },
    "beat_registered": IN_GENERATION | SESSION,
}
"""The errors that each type of request may receive. Most are kinds of requests of one key, in all of its versions."""


class Whom(NamedTuple):
    """A group, an id that may be of one of its members, and a generation or epoch that may be the member's."""

    group: str
    member: str
    generation: int


class World:
    """What all clients have received: members with their generations, what was committed, who owned what."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.members: dict[str, dict[str, int]] = {group: {} for group in GROUPS}
        self.offset = 0
        self.committed: dict[tuple[str, int], set[int]] = defaultdict(set)
        self.owners: dict[tuple[int, str, int], str] = {}
        self.seen: Counter[tuple[str, int]] = Counter()

    def observed(self, group: str, member: str, generation: int) -> None:
        """Note the generation that a member received; the last eight of a group are kept."""
        known = self.members.get(group)
        if known is not None and member:
            known.pop(member, None)
            known[member] = generation
            for oldest in list(known)[:-8]:
                del known[oldest]

    def owns(self, generation: int, topic_partition: tuple[str, int], member: str) -> None:
        """A member of `OURS` was assigned a partition in a generation: no other member was, at any time."""
        owner = self.owners.setdefault((generation, *topic_partition), member)
        assert owner == member, (generation, topic_partition, owner, member)

    def note(self, what: str, *errors: int) -> None:
        """Error codes in an answer."""
        for error in errors:
            assert error in ALLOWED[what], f"{what} was told {Error(error).name}"
            self.seen[what, error] += 1

    def judge(self, what: str, error: int, *wrong: bool) -> None:
        """The error of a request that can never be taken where any of this is so."""
        self.note(what, error)
        assert error or not any(wrong), f"{what} was taken, which is wrong in {wrong}"


class Careless(WeightedChoice):
    """One client. Each request is drawn at random, mostly from received values."""

    def __init__(self, client: Client, world: World, dice: random.Random) -> None:
        super().__init__(dice, usual=0.9)
        self.client = client
        self.world = world
        self.topic_id = client.topic_id("orders")

    async def run(self) -> None:
        """Ask until the world has had enough."""
        operations: Operations[Awaitable[None]] = {
            self.join: 14,
            self.sync: 10,
            self.beat_classic: 10,
            self.leave: 3,
            self.beat_modern: 16,
            self.commit: 14,
            self.fetch: 6,
            self.delete_offsets: 1,
            self.delete_groups: 1,
            self.look: 2,
            self.find: 2,
            self.rewind: 2,
            self.create: 3,
            self.register: 14,
            self.beat_registered: 14,
        }
        while self.world.left > 0:
            await draw(self.dice, operations)()

    async def ask(self, request: Request, newest: int | None = None, oldest: int = 0) -> Any:
        """The answer, in any version up to `newest`, mostly in that one."""
        self.world.left -= 1
        first, last = self.client.peer.api_versions[request.api_key]
        last = last if newest is None else min(newest, last)
        usual = self.dice.random() < 0.5
        return await self.client.call(request, last if usual else self.dice.randint(max(first, oldest), last))

    # classic groups

    async def join(self) -> None:
        whom = self.whom(CLASSIC)
        request = join(
            whom.group,
            "" if self.dice.random() < 0.4 else whom.member,
            session_timeout_ms=self.mostly(self.pick((30, 100)), 0, -1, 2**31 - 1),
            rebalance_timeout_ms=self.mostly(REBALANCE_MS, 0, 5, -(2**31)),
            protocol_type=self.mostly("consumer", "connect", ""),
            group_instance_id=self.instance(),
        )
        if self.dice.random() < 0.03:
            request.protocols = []
        answer = await self.ask(request)
        endless = not 0 < request.session_timeout_ms < 2**31 - 1
        self.world.judge("join", answer.error_code, not whom.group, endless, not request.protocols)
        if answer.member_id:
            self.world.observed(whom.group, answer.member_id, answer.generation_id)
        if not answer.error_code and answer.leader == answer.member_id:
            parts = {each.member_id: assignment("orders", at) for at, each in enumerate(answer.members)}
            brought = sync(whom.group, answer.member_id, answer.generation_id, parts)
            self.world.note("sync", (await self.ask(brought)).error_code)

    async def sync(self) -> None:
        whom = self.whom(CLASSIC)
        parts = {self.whom(CLASSIC).member: self.dice.randbytes(8) for _ in range(2)}
        request = sync(*whom, parts)
        request.protocol_name = self.mostly("range", None, "x")
        request.group_instance_id = self.instance()
        self.world.note("sync", (await self.ask(request)).error_code)

    async def beat_classic(self) -> None:
        request = heartbeat(*self.whom(CLASSIC), self.instance())
        self.world.note("beat_classic", (await self.ask(request)).error_code)

    async def leave(self) -> None:
        whom = self.whom(self.pick(GROUPS))
        answer = await self.ask(leave(whom.group, whom.member, (self.whom(whom.group).member, self.instance())))
        self.world.note("leave", answer.error_code, *(each.error_code for each in answer.members))

    # consumer groups

    async def beat_modern(self) -> None:
        whom = self.whom(MODERN)
        if self.dice.random() < 0.4:
            request = beat_join(whom.group, self.mostly(f"m{self.dice.randrange(5)}", ""), "orders")
            request.server_assignor = self.mostly(None, "range", "sticky")
            request.instance_id = self.instance()
            request.rebalance_timeout_ms = self.mostly(REBALANCE_MS, -1, 0)
            if self.dice.random() < 0.1:
                request.subscribed_topic_regex = self.pick(("ord.*", *NO_PATTERNS, ""))
        else:
            request = fast_heartbeat(
                whom.group, whom.member, self.mostly(whom.generation, -1, -2, -3), instance_id=self.instance()
            )
            if self.dice.random() < 0.5:
                has = self.pick(({}, {self.topic_id: [0, 1]}, {self.topic_id: [-1, 9]}, {NOWHERE: [0]}))
                request.topic_partitions = owned(has)
        answer = await self.ask(request, oldest=0 if request.subscribed_topic_regex is None else PATTERNS_SINCE)
        no_pattern = request.subscribed_topic_regex in NO_PATTERNS
        self.world.judge("beat_modern", answer.error_code, not whom.group, no_pattern)
        if not answer.error_code:
            assert (given(answer) or {}).keys() <= {self.topic_id}
            self.world.observed(whom.group, answer.member_id or request.member_id, answer.member_epoch)

    # offsets

    async def commit(self) -> None:
        whom = self.whom(self.pick(GROUPS)) if self.dice.random() < 0.8 else Whom(self.pick(GROUPS), "", -1)
        self.world.offset += 1
        partition, offset = self.mostly(self.dice.randrange(PARTITIONS), -1, PARTITIONS), self.world.offset
        note = self.mostly("", None, "longer than that")
        newest: int | None = BY_NAME
        topic: str | bytes = self.mostly("orders", "nowhere")
        if self.dice.random() < 0.2:
            topic, newest = self.mostly(self.topic_id, NOWHERE), None
        request = commit(whom.group, topic, {partition: offset}, whom.member, whom.generation, metadata=note)
        if newest is None:
            answer = await self.ask(request, oldest=OffsetCommitRequest.versions[1])
        else:
            answer = await self.ask(request, newest)
        (error,) = codes(answer)
        there = topic in ("orders", self.topic_id) and partition in range(PARTITIONS)
        self.world.judge("commit", error, not there, len(note or "") > METADATA_MAX)
        if not error:
            self.world.committed[whom.group, partition].add(offset)

    async def fetch(self) -> None:
        whom = self.whom(self.pick(GROUPS))
        if self.dice.random() < 0.3:
            asked = fetch_of(whom.group, self.mostly(self.topic_id, NOWHERE), 0, PARTITIONS)
            asked.member_id, asked.member_epoch = self.pick((None, whom.member)), whom.generation
            answer = await self.ask(OffsetFetchRequest(groups=[asked]), oldest=OffsetFetchRequest.versions[1])
        else:
            answer = await self.ask(fetch(whom.group, self.pick(("orders", "nowhere")), 0, -1), BY_NAME)
        for found in answer.groups or [answer]:
            self.world.note("fetch", found.error_code, *codes(found))

    async def delete_offsets(self) -> None:
        """A request for the one group that is not checked at the end."""
        topic = OffsetDeleteRequest.OffsetDeleteRequestTopic
        entry = topic(name="orders", partitions=[topic.OffsetDeleteRequestPartition(partition_index=self.pick((0, 9)))])
        answer = await self.ask(OffsetDeleteRequest(group_id=self.mostly(PASSING, "", "none"), topics=[entry]))
        self.world.note("delete_offsets", answer.error_code, *codes(answer))

    async def rewind(self) -> None:
        group, partition = self.mostly(self.pick(GROUPS), "", "none"), self.dice.randrange(PARTITIONS + 1)
        answer = await self.ask(rewind_to(group, ("orders", partition, self.pick((0, 5, -1, -7)), -1)))
        (part,) = answer.topics[0].partitions
        self.world.judge("rewind", part.error_code, group not in GROUPS, partition == PARTITIONS)
        if not part.error_code:
            self.world.committed[group, partition].add(part.offset)

    # administrators

    async def delete_groups(self) -> None:
        """By the request that every broker has, or by our own; those with members are refused."""
        names = [PASSING, self.pick(("", "none", PASSING))]
        ours = self.dice.random() < 0.5
        answer = await self.ask(DeleteGroupRequest(groups=names) if ours else DeleteGroupsRequest(groups_names=names))
        assert {each.group_id for each in answer.results} == set(names)
        self.world.note("delete_group" if ours else "delete_groups", *(each.error_code for each in answer.results))

    async def find(self) -> None:
        """Who coordinates a group; transactions and share groups have no coordinator."""
        name = self.pick((*GROUPS, "", "none"))
        request = FindCoordinatorRequest(
            key=name, key_type=self.mostly(0, 1, 2, -1), coordinator_keys=self.pick(([name], [name, name, ""], []))
        )
        answer = await self.ask(request)
        self.world.note("find", answer.error_code, *(each.error_code for each in answer.coordinators))
        assert all((each.node_id >= 0) is (each.error_code == 0) for each in answer.coordinators)

    async def look(self) -> None:
        names = [*GROUPS, "", "none"]
        request: Request = self.pick(
            (
                ListGroupsRequest(),
                DescribeGroupsRequest(groups=names),
                ConsumerGroupDescribeRequest(group_ids=names),
                ListGroupsPlusRequest(groups=self.pick(([], names))),
            )
        )
        answer = await self.ask(request)
        for group in answer.groups:
            self.world.note("look", getattr(group, "error_code", 0))

    # registered groups

    async def create(self) -> None:
        topics = self.pick((["orders"], [], ["orders", "nowhere"]))
        request = create(self.mostly(self.pick((OURS, PASSING)), "", CLASSIC), *topics)
        request.session_timeout_ms = self.mostly(30, 0, -1, 2**31 - 1)
        request.assignor = self.mostly(self.pick(("range", "roundrobin", "sticky", "uniform")), "", "best")
        if self.dice.random() < 0.3:
            request.topic_pattern = self.pick(("ord.*", *NO_PATTERNS, ""))
            request.topics = self.mostly(None, ["orders"])
        if self.dice.random() < 0.05:
            request.topics = ["../etc"]
        request.ephemeral = request.group_id == PASSING and self.dice.random() < 0.5
        endless = not 0 < request.session_timeout_ms < 2**31 - 1
        wrong = request.topics == ["../etc"], request.topic_pattern in NO_PATTERNS, request.assignor == "best"
        self.world.judge("create", (await self.ask(request)).error_code, not request.group_id, endless, *wrong)

    async def register(self) -> None:
        group = self.mostly(OURS, PASSING, CLASSIC, MODERN, "")
        member = self.mostly(f"c{self.dice.randrange(6)}", "")
        request = register(group, member, *self.pick((("orders",), (), ("orders", "nowhere"))))
        request.session_timeout_ms = self.mostly(self.pick((30, 100)), 0, -1, 2**31 - 1)
        request.rebalance_timeout_ms = self.mostly(REBALANCE_MS, 0, 5, -(2**31))
        if self.dice.random() < 0.1:
            claims = self.pick(({"orders": [0]}, {"orders": [0, 0, 1]}, {"orders": [-1]}, {"nowhere": [0]}))
            request.claimed_partitions = register(group, member, claims=claims).claimed_partitions
        answer = await self.ask(request)
        endless = request.session_timeout_ms in (-1, 2**31 - 1)
        self.world.judge("register", answer.error_code, not group, not member, endless)
        if not answer.error_code:
            self.world.observed(group, member, answer.generation_id)
            for topic_partition in starts(answer) if group == OURS else ():
                self.world.owns(answer.generation_id, topic_partition, member)

    async def beat_registered(self) -> None:
        whom = self.whom(OURS)
        request = beat_plus(*whom, self.mostly(self.pick((0, 30)), -1, 2**31 - 1))
        answer = await self.ask(request)
        self.world.note("beat_registered", answer.error_code)
        if not answer.error_code:
            assert answer.generation_id >= whom.generation
            self.world.observed(whom.group, whom.member, answer.generation_id)

    # what a careless client says

    def whom(self, home: str) -> Whom:
        """Mostly a known member of the group, with its generation."""
        others = [group for group in GROUPS if OURS not in (group, home)] or [home]
        group = self.mostly(home, self.pick(others), "")
        known = self.world.members.get(group)
        if not known or self.dice.random() < 0.1:
            return Whom(group, self.pick(("", "nobody", "c1", "m1")), self.pick((-1, 0, 1, 2**31 - 1)))
        member = self.pick(list(known))
        return Whom(group, member, self.mostly(known[member], -1, known[member] - 1, 2**31 - 1))

    def instance(self) -> str | None:
        return self.mostly(None, "i", "j")
