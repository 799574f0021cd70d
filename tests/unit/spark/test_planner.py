"""Splits and limits of micro-batches, for random partitions, layouts and limits."""

import random

import pytest
from kafkalite_sdk import TopicPartition
from pyspark_kafkalite.planner import Layout, OffsetRange, Split, SplitLimits, Trigger, limit_ends, plan, share_limit

from tests.kit.seeds import first_seed, replayed_seed

SEEDS = range(150)
MIB = 1 << 20


def seeded(seed: int) -> random.Random:
    replayed = replayed_seed()
    seed = first_seed() + seed if replayed is None else replayed
    print(f"KAFKALITE_SEED={seed}")
    return random.Random(seed)


def random_layout(random: random.Random) -> Layout:
    """Segments with offsets that compaction has removed, empty ones, or nothing known."""
    if random.random() < 0.2:
        return Layout()
    edges = [random.choice([0, 7, 10_000])]
    for _ in range(random.randint(1, 12)):
        edges.append(edges[-1] + random.choice([1, 5, 1000, 200_000]))
    return Layout(edges, [random.choice([0, 1, 80, MIB, 64 * MIB]) for _ in edges[1:]])


def random_world(random: random.Random) -> tuple[list[OffsetRange], dict[TopicPartition, Layout]]:
    names = [TopicPartition(topic, index) for topic in ("a", "b") for index in range(random.randint(1, 8))]
    layouts = {each: random_layout(random) for each in names}
    ranges = []
    for each in names:
        start = random.choice([0, 3, 9_000, 150_000])
        ranges.append(OffsetRange(*each, start, start + random.choice([0, 1, 2, 500, 90_000])))
    return ranges, layouts


def random_limits(random: random.Random, size: float) -> SplitLimits:
    """Limits with which `size` bytes have at most some hundred splits."""
    target = max(random.choice([1, 1000, MIB, 128 * MIB]), int(size / 200))
    records = random.choice([None, 1000, 50_000])
    return SplitLimits(target, random.choice([None, 1, 3, 40]), records)


def covered(splits: list[Split]) -> list[OffsetRange]:
    """The ranges of all splits, adjacent ones joined."""
    found: list[OffsetRange] = []
    for each in sorted(each for split in splits for each in split.ranges):
        last = found[-1] if found else None
        if last is not None and last[:2] == each[:2] and last.end == each.start:
            found[-1] = last._replace(end=each.end)
        else:
            found.append(each)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_each_offset_is_in_exactly_one_split_and_limits_hold(seed: int) -> None:
    random = seeded(seed)
    ranges, layouts = random_world(random)
    limits = random_limits(random, sum(layouts[TopicPartition(*each[:2])].size(*each[2:]) for each in ranges))
    splits = plan(ranges, layouts, limits)
    assert covered(splits) == sorted(each for each in ranges if each.start < each.end)
    assert all(each.start < each.end for split in splits for each in split.ranges) and all(s.ranges for s in splits)
    offsets = sum(each.end - each.start for each in ranges)
    assert len(splits) >= min(limits.min_partitions or 1, offsets)
    if limits.max_records is not None:
        assert all(sum(e.end - e.start for e in split.ranges) <= limits.max_records for split in splits)
    random.shuffle(ranges)
    assert plan(ranges, dict(reversed(layouts.items())), limits) == splits


@pytest.mark.parametrize("seed", SEEDS)
def test_limits_of_a_micro_batch_hold_and_each_backlog_advances(seed: int) -> None:
    random = seeded(seed)
    ranges, layouts = random_world(random)
    start = {TopicPartition(each.topic, each.partition): each.start for each in ranges}
    latest = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
    max_offsets, max_bytes = random.choice([None, 1, 20, 5000]), random.choice([None, 1, 10_000, 10 * MIB])
    ends = limit_ends(start, latest, layouts, max_offsets, max_bytes)
    backlogs = [each for each in start if start[each] < latest[each]]
    assert all(start[each] < ends[each] <= latest[each] for each in backlogs)
    assert all(ends[each] == latest[each] for each in start if each not in backlogs)
    if max_offsets is not None:
        assert sum(ends[each] - start[each] for each in backlogs) <= max(max_offsets, len(backlogs))
    if max_bytes is not None:
        more = [each for each in backlogs if ends[each] > start[each] + 1]
        assert sum(layouts[each].size(start[each], ends[each]) for each in more) <= max_bytes * 1.0001
    assert limit_ends(dict(reversed(start.items())), latest, layouts, max_offsets, max_bytes) == ends


@pytest.mark.parametrize("seed", SEEDS)
def test_positions_in_a_layout_ascend_and_offsets_invert_them(seed: int) -> None:
    random = seeded(seed)
    layout = random_layout(random)
    offsets = sorted(random.randrange(0, 1_500_000) for _ in range(50))
    positions = [layout.position(each) for each in offsets]
    assert positions == sorted(positions)
    for position in positions:
        assert layout.position(layout.offset(position)) <= position + 1e-6
        assert layout.position(layout.offset(position) + 1) >= position - 1e-6


def test_hot_partition_is_divided_at_segment_edges_and_small_ones_are_packed() -> None:
    hot, cold = TopicPartition("a", 0), [TopicPartition("a", index) for index in range(1, 9)]
    layouts = {hot: Layout([0, 1000, 2010, 2990, 4000], [97 * MIB, 101 * MIB, 98 * MIB, 104 * MIB])} | {
        each: Layout([0, 100], [MIB]) for each in cold
    }
    ranges = [OffsetRange(*hot, 0, 4000), *(OffsetRange(*each, 0, 100) for each in cold)]
    splits = plan(ranges, layouts, SplitLimits(100 * MIB))
    assert [[each[1:] for each in split.ranges] for split in splits] == [
        [(0, 0, 1000)],
        [(0, 1000, 2010)],
        [(0, 2010, 2990)],
        [(0, 2990, 4000)],
        [(index, 0, 100) for index in range(1, 9)],
    ]


def test_split_sizes_follow_the_bytes_and_not_the_offsets() -> None:
    """Half of the bytes are in a hundredth of the offsets: records were larger, or compaction has removed many."""
    name = TopicPartition("a", 0)
    layouts = {name: Layout([0, 99_000, 100_000], [400 * MIB, 400 * MIB])}
    splits = plan([OffsetRange(*name, 0, 100_000)], layouts, SplitLimits(200 * MIB))
    assert [each.ranges[0].end for each in splits] == [49_500, 99_000, 99_500, 100_000]
    assert {each.size for each in splits} == {200 * MIB}


def test_limit_is_shared_in_proportion_to_backlogs() -> None:
    assert share_limit([100, 300, 600], 103) == [10, 30, 61]
    assert share_limit([1_000_000, 5], 100) == [98, 1]
    assert share_limit([5, 5, 5], 2) == [1, 1, 1]
    assert share_limit([5, 6], 11) == [5, 6]


def test_micro_batch_waits_for_its_least_number_of_offsets_until_the_delay() -> None:
    trigger = Trigger(100, 60.0)
    assert trigger.begins(1, 1000.0)
    assert not trigger.begins(99, 1001.0) and not trigger.begins(99, 1059.9)
    assert trigger.begins(99, 1060.0)
    assert not trigger.begins(99, 1061.0) and trigger.begins(100, 1062.0)
    assert Trigger(None, 60.0).begins(0, 0.0)
