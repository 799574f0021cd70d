"""Sends the cases of the authorisation matrix to a broker, phase by phase."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

from kafkalite.protocol.messages.create_topics import CreateTopicsRequest
from kafkalite.protocol.messages.delete_topics import DeleteTopicsRequest
from kafkalite.protocol.messages.find_coordinator import FindCoordinatorRequest
from kafkalite.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkalite.protocol.messages.metadata import MetadataRequest
from kafkalite.protocol.messages.offset_commit import OffsetCommitRequest
from kafkalite.protocol.schema import Request
from tests.kit.authorization_cases import (
    AUTOMATIC,
    CREATION,
    DOOMED,
    GROUP,
    OTHER_GROUP,
    OTHER_TOPIC,
    OTHER_TRANSACTION,
    TOPIC,
    TRANSACTION,
    Case,
    Phase,
    cases,
    outcome,
)

ANSWERS = Path(__file__).with_name("authorization_answers.json")
DIFFERENT = Path(__file__).with_name("authorization_answers_3_9.json")
TRIES_MAX = 500

Answers = dict[str, dict[str, str]]  # outcomes by label of the case and of the phase


class World(Protocol):
    """A broker."""

    async def as_root(self, request: Request, version: int) -> Any:
        """Send a request as a super user."""

    async def as_client(self, phase: Phase, case: Case) -> Any:
        """Send a request of a case."""

    async def set_acls(self, phase: Phase) -> None:
        """Replace all ACLs."""

    async def pause(self) -> None:
        """Wait a little before a request is repeated."""


async def prepare(world: World) -> bytes:
    """Create what the cases name, and return the id of the topic."""
    await create(world, TOPIC)
    await create(world, OTHER_TOPIC)
    for kind, key in ((0, GROUP), (1, TRANSACTION)):  # creates the internal topics
        await world.as_root(FindCoordinatorRequest(key=key, key_type=kind), 3)
    part = OffsetCommitRequest.OffsetCommitRequestTopic.OffsetCommitRequestPartition
    for group in (GROUP, OTHER_GROUP):
        topics = [
            OffsetCommitRequest.OffsetCommitRequestTopic(
                name=name, partitions=[part(partition_index=0, committed_offset=0, committed_metadata="")]
            )
            for name in (TOPIC, OTHER_TOPIC)
        ]
        commit = OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=topics)
        for _ in range(TRIES_MAX):
            answer = await world.as_root(commit, 8)
            if not any(each.error_code for topic in answer.topics for each in topic.partitions):
                break
            await world.pause()
        else:
            raise AssertionError(answer)
    for name in (TRANSACTION, OTHER_TRANSACTION):
        for _ in range(TRIES_MAX):
            answer = await world.as_root(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=10_000), 4)
            if not answer.error_code:
                break
            await world.pause()
        else:
            raise AssertionError(answer)
    return await topic_id(world, TOPIC)


async def create(world: World, name: str) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    for _ in range(TRIES_MAX):
        (created,) = (await world.as_root(request, 7)).topics
        if not created.error_code or is_led(await described(world, name)):
            break
        await world.pause()  # with ZooKeeper its deletion goes on after the response
    assert any(await topic_id(world, name))


async def topic_id(world: World, name: str, *, exists: bool = True) -> bytes:
    """Wait until a topic exists with a leader, or does not exist; returns its id."""
    for _ in range(TRIES_MAX):
        found = await described(world, name)
        if is_led(found) if exists else found.error_code == 3:
            return bytes(found.topic_id)
        await world.pause()
    raise AssertionError(f"{name}: {found}")


async def described(world: World, name: str) -> Any:
    """A topic in the response of Metadata."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (found,) = (await world.as_root(request, 12)).topics
    return found


def is_led(topic: Any) -> bool:
    """Whether a described topic exists, and its partitions have leaders."""
    return not topic.error_code and all(each.leader_id >= 0 for each in topic.partitions)


async def run(world: World, phases: Iterable[Phase], asked: Mapping[str, Iterable[str]] | None = None) -> Answers:
    """Send all cases in all phases, or only those of `asked`: labels of cases by label of the phase."""
    found: Answers = {}
    known = await prepare(world)
    for phase in phases:
        await create(world, DOOMED)
        doomed = await topic_id(world, DOOMED)
        gone = [DeleteTopicsRequest.DeleteTopicState(name=AUTOMATIC)]
        await world.as_root(DeleteTopicsRequest(topics=gone, timeout_ms=10_000), 6)
        await topic_id(world, AUTOMATIC, exists=False)
        await world.set_acls(phase)
        for case in cases(known, doomed):
            if asked is None or case.label in asked[phase.label]:
                facts = outcome(await world.as_client(phase, case))
                if case.note == CREATION:  # Kafka's first response has no id yet
                    facts = facts.replace("+id", "")
                    if "=" not in facts:
                        await topic_id(world, AUTOMATIC)  # else it may be created after the deletion of the next phase
                found.setdefault(case.label, {})[phase.label] = facts
    return found


def pack(answers: Answers) -> str:
    """The answers as text: by case, the phases of each outcome."""
    packed: dict[str, dict[str, list[str]]] = {}
    for label, by_phase in answers.items():
        for phase, facts in by_phase.items():
            packed.setdefault(label, {}).setdefault(facts, []).append(phase)
    return json.dumps(packed, indent=1) + "\n"


def recorded() -> Answers:
    """The answers of Apache Kafka 4.4."""
    return unpack(ANSWERS.read_text())


def recorded_3_9() -> Answers:
    """The answers of Apache Kafka 3.9 with ZooKeeper to the cases that it serves, with the ACLs that it knows."""
    stored = json.loads(DIFFERENT.read_text())
    different = unpack(json.dumps(stored["different"]))
    return {
        label: {phase: facts for phase, facts in by_phase.items() if phase not in stored["not known"]}
        | different.get(label, {})
        for label, by_phase in recorded().items()
        if label not in stored["not served"]
    }


def difference(answers: Answers, others: Answers) -> Answers:
    """The answers that are not those of others."""
    found = {
        label: {phase: facts for phase, facts in by_phase.items() if facts != others[label][phase]}
        for label, by_phase in answers.items()
    }
    return {label: by_phase for label, by_phase in found.items() if by_phase}


def write_difference(answers: Answers) -> None:
    """Store the answers of 3.9 as what differs from 4.4."""
    expected = recorded()
    asked = {phase for by_phase in answers.values() for phase in by_phase}
    stored = {
        "not served": sorted(expected.keys() - answers.keys()),
        "not known": sorted({phase for by_phase in expected.values() for phase in by_phase} - asked),
        "different": json.loads(pack(difference(answers, expected))),
    }
    DIFFERENT.write_text(json.dumps(stored, indent=1) + "\n")


def unpack(text: str) -> Answers:
    """The answers of a text of `pack`."""
    packed = json.loads(text)
    return {
        label: {phase: facts for facts, phases in outcomes.items() for phase in phases}
        for label, outcomes in packed.items()
    }
