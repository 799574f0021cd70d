"""Plans and commits new offsets of a group, and prints the prior and the new offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from kafkalite.cli.client_options import print_rows, refusal
from kafkalite.cli.failure import fail
from kafkalite.cli.group.client import DEAD, EMPTY, CommittedOffset, GroupClient
from kafkalite.cli.group.positions import chosen_partitions, parse_to, parse_topics
from kafkalite.cli.leader_connections import LeaderConnections
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest

COLUMNS = ("GROUP", "TOPIC", "PARTITION", "PRIOR-OFFSET", "NEW-OFFSET")
SHOWN_MAX = 5  # errors listed in the last line of a command
DRY_RUN = "nothing was changed: --dry-run"
LOOKS_LIKE_TIME_MS = 10**11  # 1973; few logs have so many records

RewoundTopic = RewindConsumerRequest.RewoundTopic


class Moved(NamedTuple):
    """Result of a plan: the moves that were made, and an error text for each other partition."""

    moves: list["Move"]
    refused: list[str]


class Move(NamedTuple):
    """A partition's committed offset, None for none, and its replacement."""

    topic_partition: TopicPartition
    before: int | None
    after: CommittedOffset


def moves_to(
    wanted: Mapping[TopicPartition, CommittedOffset], before: Mapping[TopicPartition, CommittedOffset]
) -> list[Move]:
    """The moves from the committed offsets to the wanted ones."""
    return [
        Move(topic_partition, before[topic_partition].offset if topic_partition in before else None, after)
        for topic_partition, after in sorted(wanted.items())
    ]


async def planned(
    leaders: LeaderConnections,
    groups: GroupClient,
    group: str,
    to: str,
    topics: Sequence[str],
    owned: Iterable[TopicPartition] = (),
) -> list[Move]:
    """Return the moves for `--to` and `--topic`; ends the command if there are no partitions.

    Without topics: all partitions with committed offsets, and those that members own without a commit.
    """
    target, wanted = parse_to(to), parse_topics(topics)
    before = await groups.committed(group)
    if wanted:
        topic_partitions = await chosen_partitions(leaders, wanted)
    else:
        known = sorted({*before, *owned})
        sizes = await leaders.known({topic_partition.topic for topic_partition in known})
        topic_partitions = [
            topic_partition
            for topic_partition in known
            if topic_partition.partition < sizes.get(topic_partition.topic, 0)
        ]
        if not topic_partitions:
            fail(f"{group} has no committed offsets: name the topics with --topic")
    after = await target.found(leaders, topic_partitions)
    if target.offset is not None:
        say_outside(target.offset, after)
    return moves_to({topic_partition: CommittedOffset(offset, "") for topic_partition, offset in after.items()}, before)


def say_outside(offset: int, after: Mapping[TopicPartition, int]) -> None:
    """Report the partitions that have no such offset, with the nearest one, and a hint."""
    outside = [
        f"{topic_partition} (nearest: {found})" for topic_partition, found in sorted(after.items()) if found != offset
    ]
    if outside:
        hint = f"; a time in milliseconds is written @{offset}" if offset >= LOOKS_LIKE_TIME_MS else ""
        more = f" and {len(outside) - SHOWN_MAX} more" if len(outside) > SHOWN_MAX else ""
        text = f"offset {offset} is outside the log of {', '.join(outside[:SHOWN_MAX])}{more}{hint}"
        click.echo(text, err=True)


async def require_empty(groups: GroupClient, group: str) -> None:
    """End the command if the group has members, which would continue from their positions."""
    if (state := await groups.state(group)) not in (EMPTY, DEAD):
        fail(f"{group} has members (state {state}): stop them first, or use kafkalite group rewind")


async def commit_moves(groups: GroupClient, group: str, moves: Sequence[Move]) -> Moved:
    """Commit the new offsets of a group without members."""
    errors = await groups.commit(group, {move.topic_partition: move.after for move in moves})
    return Moved(
        [move for move in moves if move.topic_partition not in errors],
        [refusal(error, None, f"{group}: {topic_partition}") for topic_partition, error in errors.items()],
    )


async def tried_moves(leaders: LeaderConnections, group: str, moves: Sequence[Move]) -> Moved:
    """Return the result that `commit_moves` would have: partitions that do not exist are rejected."""
    sizes = await leaders.known({move.topic_partition.topic for move in moves})
    missing = {
        move.topic_partition
        for move in moves
        if move.topic_partition.partition >= sizes.get(move.topic_partition.topic, 0)
    }
    return Moved(
        [move for move in moves if move.topic_partition not in missing],
        [
            refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, f"{group}: {topic_partition}")
            for topic_partition in sorted(missing)
        ],
    )


async def rewind_with_members(groups: GroupClient, group: str, moves: Sequence[Move]) -> Moved:
    """Rewind a group with members; returns the new offsets from the broker."""
    peer = await groups.coordinator(group)
    if RewindConsumerRequest.api_key not in peer.api_versions:
        fail(f"{group} has members, and this broker cannot move a group with members: stop them first")
    by_partition = {move.topic_partition: move for move in moves}
    topics: dict[str, list[RewoundTopic.RewoundPartition]] = {}
    for topic_partition, move in by_partition.items():
        wanted = RewoundTopic.RewoundPartition(partition_index=topic_partition.partition, offset=move.after.offset)
        topics.setdefault(topic_partition.topic, []).append(wanted)
    request = RewindConsumerRequest(
        group_id=group, topics=[RewoundTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    response = await peer.call(request)
    done = Moved([], [])
    for topic in response.topics:
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                done.refused.append(refusal(each.error_code, None, f"{group}: {topic_partition}"))
            else:
                done.moves.append(by_partition[topic_partition]._replace(after=CommittedOffset(each.offset, "")))
    return done


def print_moves(group: str, moved: Moved, as_json: bool, dry_run: bool) -> None:
    """Print the prior and the new offsets; ends the command if some partitions were not moved."""
    rows = [(group, *move.topic_partition, move.before, move.after.offset) for move in moved.moves]
    if rows or not moved.refused:
        print_rows(COLUMNS, rows, as_json)
    if moved.refused:
        fail(shortened(moved.refused))
    if not rows:
        click.echo("nothing to move", err=True)
    elif dry_run:
        click.echo(DRY_RUN, err=True)


def shortened(refused: Sequence[str]) -> str:
    """The first error texts, and the number of the others."""
    more = len(refused) - SHOWN_MAX
    return "; ".join(refused[:SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
