"""Moving a group's offsets: what is planned, how it is done, and the table of before and after."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from kafkalite.cli.client import print_rows, refusal
from kafkalite.cli.failure import fail
from kafkalite.cli.groups import DEAD, EMPTY, Committed, Groups
from kafkalite.cli.leaders import Leaders
from kafkalite.cli.places import chosen_places, parse_to, parse_topics
from kafkalite.errors import KafkaErrorCode
from kafkalite.model import TopicPartition
from kafkalite.protocol.extensions.rewind_consumer import RewindConsumerRequest

COLUMNS = ("topic", "partition", "before", "after")
SHOWN_MAX = 5  # refusals in the one line of a command's end
DRY_RUN = "nothing was changed: --dry-run"
LOOKS_LIKE_TIME_MS = 10**11  # 1973; few logs have so many records

RewoundTopic = RewindConsumerRequest.RewoundTopic


class Moved(NamedTuple):
    """What became of a plan: what was moved, and why the rest was not, a text for each partition."""

    moves: list["Move"]
    refused: list[str]


class Move(NamedTuple):
    """A partition's committed offset, None for none, and the one that takes its place."""

    place: TopicPartition
    before: int | None
    after: Committed


def moves_to(wanted: Mapping[TopicPartition, Committed], before: Mapping[TopicPartition, Committed]) -> list[Move]:
    """The moves that lead from what is committed to what is wanted."""
    return [
        Move(place, before[place].offset if place in before else None, after) for place, after in sorted(wanted.items())
    ]


async def planned(
    leaders: Leaders, groups: Groups, group: str, to: str, topics: Sequence[str], owned: Iterable[TopicPartition] = ()
) -> list[Move]:
    """What `--to` and `--topic` mean for this group; ends the command where that is nothing.

    Without topics: all that the group has committed, and what its members own, though they have not committed yet.
    """
    target, wanted = parse_to(to), parse_topics(topics)
    before = await groups.committed(group)
    if wanted:
        places = await chosen_places(leaders, wanted)
    else:
        known = sorted({*before, *owned})
        sizes = await leaders.known({place.topic for place in known})
        places = [place for place in known if place.partition < sizes.get(place.topic, 0)]
        if not places:
            fail(f"{group} has committed nothing: say which topics, with --topic")
    after = await target.found(leaders, places)
    if target.offset is not None:
        say_outside(target.offset, after)
    return moves_to({place: Committed(offset, "") for place, offset in after.items()}, before)


def say_outside(offset: int, after: Mapping[TopicPartition, int]) -> None:
    """Tell that some partitions have no such offset, and of what may have been meant."""
    if outside := sum(found != offset for found in after.values()):
        hint = f"; a time in milliseconds is written @{offset}" if offset >= LOOKS_LIKE_TIME_MS else ""
        text = f"offset {offset} is outside the log of {outside} partition(s): to the nearest end{hint}"
        click.echo(text, err=True)


async def must_rest(groups: Groups, group: str) -> None:
    """End the command where the group has members, who would go on from where they are."""
    if (state := await groups.state(group)) not in (EMPTY, DEAD):
        fail(f"{group} has members (it is {state}): stop them first, or use kafkalite group rewind")


async def commit_moves(groups: Groups, group: str, moves: Sequence[Move]) -> Moved:
    """Move a group without members."""
    errors = await groups.commit(group, {move.place: move.after for move in moves})
    return Moved(
        [move for move in moves if move.place not in errors],
        [refusal(error, None, f"{group}: {place}") for place, error in errors.items()],
    )


async def tried_moves(leaders: Leaders, group: str, moves: Sequence[Move]) -> Moved:
    """What `commit_moves` would do: it is refused for partitions that are not there."""
    sizes = await leaders.known({move.place.topic for move in moves})
    gone = {move.place for move in moves if move.place.partition >= sizes.get(move.place.topic, 0)}
    return Moved(
        [move for move in moves if move.place not in gone],
        [refusal(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None, f"{group}: {place}") for place in sorted(gone)],
    )


async def rewind_living(groups: Groups, group: str, moves: Sequence[Move]) -> Moved:
    """Move a group whose members go on; answers where it really is now."""
    peer = await groups.coordinator(group)
    if RewindConsumerRequest.api_key not in peer.api_versions:
        fail(f"{group} has members, and this broker does not move a living group: stop them first")
    by_place = {move.place: move for move in moves}
    topics: dict[str, list[RewoundTopic.RewoundPartition]] = {}
    for place, move in by_place.items():
        asked = RewoundTopic.RewoundPartition(partition_index=place.partition, offset=move.after.offset)
        topics.setdefault(place.topic, []).append(asked)
    request = RewindConsumerRequest(
        group_id=group, topics=[RewoundTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
    )
    answer = await peer.call(request)
    done = Moved([], [])
    for topic in answer.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            if each.error_code:
                done.refused.append(refusal(each.error_code, None, f"{group}: {place}"))
            else:
                done.moves.append(by_place[place]._replace(after=Committed(each.offset, "")))
    return done


def print_moves(moved: Moved, as_json: bool, dry_run: bool) -> None:
    """The table of before and after; ends the command if not all was moved."""
    rows = [(*move.place, move.before, move.after.offset) for move in moved.moves]
    if rows or not moved.refused:
        print_rows(COLUMNS, rows, as_json)
    if moved.refused:
        fail(shortened(moved.refused))
    if not rows:
        click.echo("nothing to move", err=True)
    elif dry_run:
        click.echo(DRY_RUN, err=True)


def shortened(refused: Sequence[str]) -> str:
    """Why partitions were not moved, for some of them."""
    more = len(refused) - SHOWN_MAX
    return "; ".join(refused[:SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")
