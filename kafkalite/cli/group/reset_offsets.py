"""Plans and commits new offsets of a group (reset, rewind, import), and prints the prior and the new offsets."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click
from kafkalite_sdk import Admin
from kafkalite_sdk.admin import Committed

from kafkalite.cli.client_options import SHOWN_MAX, explain_errors, fail_for, print_rows, shorten_errors
from kafkalite.cli.failure import PartitionSubject, fail
from kafkalite.cli.positions import chosen_partitions, existing, parse_to, parse_topics
from kafkalite.errors import GroupIdNotFoundError, KafkaError, KafkaErrorCode, UnsupportedVersionError, error_for
from kafkalite.model import TopicPartition

EMPTY = "Empty"
COLUMNS = ("GROUP", "TOPIC", "PARTITION", "PRIOR-OFFSET", "NEW-OFFSET")
DRY_RUN = "nothing was changed: --dry-run"
LOOKS_LIKE_TIME_MS = 10**11  # 1973; few logs have so many records


class Moved(NamedTuple):
    """Result of a plan: the moves that were made, and an error text for each other partition."""

    moves: list["Move"]
    refused: list[str]


class Move(NamedTuple):
    """A partition's committed offset, None for none, and its replacement."""

    topic_partition: TopicPartition
    before: int | None
    after: Committed


def moves_to(wanted: Mapping[TopicPartition, Committed], before: Mapping[TopicPartition, Committed]) -> list[Move]:
    """The moves from the committed offsets to the wanted ones."""
    return [
        Move(topic_partition, before[topic_partition].offset if topic_partition in before else None, after)
        for topic_partition, after in sorted(wanted.items())
    ]


async def plan_moves(
    admin: Admin,
    group: str,
    to: str,
    topics: Sequence[str],
    owned: Iterable[TopicPartition] = (),
) -> list[Move]:
    """Return the moves of a group of the broker for `--to` and `--topic`; see `plan_moves_from`.

    Arguments:
        admin: a client of the cluster.
        group: its id.
        to: the target, as in `--to`.
        topics: the values of `--topic`.
        owned: partitions that members own.
    """
    return await plan_moves_from(await read_committed(admin, group), admin, group, to, topics, owned)


async def plan_moves_from(
    before: Mapping[TopicPartition, Committed],
    admin: Admin,
    group: str,
    to: str,
    topics: Sequence[str],
    owned: Iterable[TopicPartition] = (),
) -> list[Move]:
    """Return the moves for `--to` and `--topic`; ends the command if there are no partitions.

    Arguments:
        before: the committed offsets.
        admin: a client of the cluster.
        group: its id.
        to: the target, as in `--to`.
        topics: the values of `--topic`; empty = all partitions with committed offsets, and `owned`.
        owned: partitions that members own, with or without a commit.
    """
    target, wanted = parse_to(to), parse_topics(topics)
    if wanted:
        topic_partitions = await chosen_partitions(admin, wanted)
    else:
        topic_partitions = sorted(await existing(admin, {*before, *owned}))
        if not topic_partitions:
            fail(f"{group} has no committed offsets: name the topics with --topic")
    after = await target.found(admin, topic_partitions)
    if target.offset is not None:
        say_outside(target.offset, after)
    return moves_to({topic_partition: Committed(offset, "") for topic_partition, offset in after.items()}, before)


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


async def read_committed(admin: Admin, group: str) -> dict[TopicPartition, Committed]:
    """The committed offsets of a group; none if the group does not exist."""
    found = await admin.group_offsets.list(group)
    fail_for(found.errors)
    return found[group]


async def require_empty(admin: Admin, group: str) -> None:
    """End the command if the group has members, which would continue from their positions."""
    try:
        state = (await admin.groups.describe(group))[group].state
    except GroupIdNotFoundError:
        return
    except KafkaError as error:
        fail_for({group: error})
    if state != EMPTY:
        fail(f"{group} has members (state {state}): stop them first, or use kafkalite group rewind")


async def commit_moves(admin: Admin, group: str, moves: Sequence[Move]) -> Moved:
    """Commit the new offsets of a group without members."""
    outcomes = await admin.group_offsets.alter(group, {move.topic_partition: move.after for move in moves})
    return Moved(
        [move for move in moves if move.topic_partition in outcomes.results],
        explain_errors({PartitionSubject.of(each, group): error for each, error in outcomes.errors.items()}),
    )


async def tried_moves(admin: Admin, group: str, moves: Sequence[Move]) -> Moved:
    """Return the result that `commit_moves` would have: partitions that do not exist are rejected."""
    found = await existing(admin, {move.topic_partition for move in moves})
    missing = [move.topic_partition for move in moves if move.topic_partition not in found]
    error = error_for(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return Moved(
        [move for move in moves if move.topic_partition in found],
        explain_errors({PartitionSubject.of(each, group): error for each in missing}),
    )


async def rewind_with_members(admin: Admin, group: str, moves: Sequence[Move]) -> Moved:
    """Rewind a group with members; returns the new offsets from the broker."""
    outcomes = await admin.group_offsets.rewind(group, {move.topic_partition: move.after.offset for move in moves})
    errors = outcomes.errors
    if any(isinstance(error, UnsupportedVersionError) for error in errors.values()):
        fail(f"{group} has members, and this broker cannot move a group with members: stop them first")
    return Moved(
        [
            move._replace(after=Committed(outcomes[move.topic_partition]))
            for move in moves
            if move.topic_partition not in errors
        ],
        explain_errors({PartitionSubject.of(each, group): error for each, error in errors.items()}),
    )


def print_moves(group: str, moved: Moved, as_json: bool, dry_run: bool) -> None:
    """Print the prior and the new offsets; ends the command if some partitions were not moved."""
    rows = [(group, *move.topic_partition, move.before, move.after.offset) for move in moved.moves]
    if rows or not moved.refused:
        print_rows(COLUMNS, rows, as_json)
    if moved.refused:
        fail(shorten_errors(moved.refused))
    if not rows:
        click.echo("nothing to move", err=True)
    elif dry_run:
        click.echo(DRY_RUN, err=True)
