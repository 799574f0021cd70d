"""The checker finds each anomaly in a history made for it, and nothing in histories that are good."""

from __future__ import annotations

import pytest

from tests.kit.checker import DAMAGED, History, check

P, Q = ("t", 0), ("t", 1)
K = ("compacted", 0)


def kept() -> History:
    """Two producers, six values, all acknowledged and read; one value more whose answer never came."""
    history = History(compacted=["compacted"])
    history.sent("a", P, [1, 2])
    history.sent("b", P, [3])
    history.sent("a", P, [4])
    history.sent("a", Q, [5, 6])
    history.sent("a", P, [7])
    history.acknowledged([1, 2], 0)
    history.acknowledged([3], 2)
    history.acknowledged([4], 3)
    history.acknowledged([5, 6], 10)
    read(history, "full", P, (0, 1), (1, 2), (2, 3), (3, 4))
    read(history, "full", Q, (10, 5), (11, 6))
    return history


def read(history: History, reader: str, partition: tuple[str, int], *found: tuple[int, int]) -> None:
    history.reading(reader, [partition])
    for offset, number in found:
        history.read(reader, partition, offset, number)


def names(history: History, full: str = "full") -> set[str]:
    return {anomaly.name for anomaly in check(history, full)}


def reread(history: History, partition: tuple[str, int], *found: tuple[int, int]) -> History:
    """Another full reading takes the place of the good one."""
    history.reads["full"][partition] = []
    read(history, "full", partition, *found)
    return history


def test_a_good_history_has_no_anomaly() -> None:
    assert check(kept(), "full") == []


def test_an_unanswered_send_may_be_there() -> None:
    history = kept()
    history.read("full", P, 4, 7)
    assert check(history, "full") == []


@pytest.mark.parametrize(
    ("found", "anomalies"),
    [([(4, 7)], set()), ([], {"lost-write"}), ([(4, 7), (5, 7)], {"duplicate"})],
)
def test_a_send_that_is_acknowledged_without_an_offset_is_kept_once(
    found: list[tuple[int, int]], anomalies: set[str]
) -> None:
    history = kept()
    history.acknowledged([7], None)
    for offset, number in found:
        history.read("full", P, offset, number)
    assert names(history) == anomalies


def test_offsets_may_be_sparse() -> None:
    history = kept()
    history.sent("b", P, [8])
    history.acknowledged([8], 50)
    history.read("full", P, 50, 8)
    assert check(history, "full") == []


def test_a_reader_may_begin_and_end_anywhere() -> None:
    history = kept()
    read(history, "tail", P, (1, 2), (2, 3))
    assert check(history, "full") == []


@pytest.mark.parametrize(
    ("found", "anomalies"),
    [
        pytest.param([(0, 1), (1, 2), (3, 4)], {"lost-write", "poll-skip"}, id="lost"),
        pytest.param([(0, 1), (1, 2), (2, 3)], {"unseen"}, id="cut short"),
        pytest.param([], {"unseen"}, id="empty"),
        pytest.param([(0, 1), (2, 3), (3, 4)], {"lost-write", "poll-skip", "torn-batch"}, id="half a batch"),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 7)], {"unseen", "inconsistent-offsets"}, id="replaced"),
        pytest.param(
            [(0, 1), (1, 2), (2, 4), (3, 3)], {"inconsistent-offsets", "duplicate"}, id="swapped against the answers"
        ),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 4), (4, 4)], {"duplicate"}, id="twice"),
        pytest.param([(0, 1), (1, 2), (2, 3), (2, 3), (3, 4)], {"nonmonotonic-poll"}, id="the same offset again"),
        pytest.param([(1, 2), (0, 1), (2, 3), (3, 4)], {"nonmonotonic-poll"}, id="back"),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 4), (4, 99)], {"unsent"}, id="never sent"),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 4), (4, DAMAGED)], {"unsent"}, id="damaged"),
        pytest.param([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)], {"unsent"}, id="of another partition"),
    ],
)
def test_each_wrong_reading_is_found(found: list[tuple[int, int]], anomalies: set[str]) -> None:
    assert names(reread(kept(), P, *found)) == anomalies


def test_rejected_value_must_not_be_read() -> None:
    history = kept()
    history.refused([7])
    assert names(history) == set()
    history.read("full", P, 4, 7)
    assert names(history) == {"refused-read"}


def test_record_that_was_read_must_be_kept() -> None:
    history = kept()
    read(history, "tail", P, (3, 4), (4, 7))
    assert names(history) == {"lost-read"}


def test_two_readers_must_agree() -> None:
    history = kept()
    history.read("full", P, 4, 7)
    read(history, "tail", P, (4, 3))
    assert names(history) == {"inconsistent-offsets", "duplicate"}


def test_reader_must_not_skip_records() -> None:
    history = kept()
    read(history, "tail", P, (0, 1), (3, 4))
    assert names(history) == {"poll-skip"}


@pytest.mark.parametrize("answered", [True, False], ids=["by its answer", "by a reading"])
def test_sends_of_one_producer_keep_their_order(answered: bool) -> None:
    history = kept()
    history.sent("b", P, [8])
    history.sent("b", P, [9])
    if answered:
        history.acknowledged([8], 6)
        history.acknowledged([9], 5)
    history.read("full", P, 5, 9)
    history.read("full", P, 6, 8)
    assert names(history) == {"nonmonotonic-send"}


def test_producers_may_overtake_each_other() -> None:
    history = kept()
    history.sent("a", P, [8])
    history.sent("b", P, [9])
    history.acknowledged([9], 5)
    history.acknowledged([8], 6)
    history.read("full", P, 5, 9)
    history.read("full", P, 6, 8)
    assert names(history) == set()


def compacted(*found: tuple[int, int]) -> History:
    """Key 1 three times and key 2 once, all acknowledged; the full reading as given."""
    history = History(compacted=["compacted"])
    history.sent("a", K, [1, 2], keys=[1, 2])
    history.sent("a", K, [3], keys=[1])
    history.sent("a", K, [4], keys=[1])
    history.acknowledged([1, 2], 0)
    history.acknowledged([3], 2)
    history.acknowledged([4], 3)
    read(history, "full", K, *found)
    return history


@pytest.mark.parametrize(
    "found", [[(0, 1), (1, 2), (2, 3), (3, 4)], [(1, 2), (3, 4)], [(1, 2), (2, 3), (3, 4)], [(0, 1), (1, 2), (3, 4)]]
)
def test_compaction_may_drop_replaced_values(found: list[tuple[int, int]]) -> None:
    assert names(compacted(*found)) == set()


@pytest.mark.parametrize(
    ("found", "anomaly"), [([(3, 4)], "lost-write"), ([(1, 2), (2, 3)], "unseen"), ([(0, 1), (1, 2)], "unseen")]
)
def test_compaction_must_keep_the_last_value_of_a_key(found: list[tuple[int, int]], anomaly: str) -> None:
    assert names(compacted(*found)) == {anomaly}


def test_only_compacted_topics_may_drop() -> None:
    history = History()
    history.sent("a", P, [1], keys=[1])
    history.sent("a", P, [2], keys=[1])
    history.acknowledged([1], 0)
    history.acknowledged([2], 1)
    read(history, "full", P, (1, 2))
    assert names(history) == {"lost-write"}


def test_a_number_is_sent_once() -> None:
    history = kept()
    with pytest.raises(AssertionError, match="sent twice"):
        history.sent("b", P, [4])


def test_the_highest_acknowledged_offset() -> None:
    history = kept()
    assert [history.highest_acknowledged(partition) for partition in (P, Q, K)] == [3, 11, -1]
    assert history.acknowledged_count == 6


def test_responses_after_the_power_cut_do_not_count() -> None:
    history = kept()
    history.deaf = True
    history.acknowledged([7], 4)
    history.refused([7])
    read(history, "tail", P, (4, 7))
    history.deaf = False
    assert names(history) == set()
    assert history.acknowledged_count == 6


def awaited() -> History:
    """A producer whose sends return awaitables; each of two has its outcome."""
    history = History()
    history.awaited.add("sdk")
    history.sent("sdk", P, [1])
    history.sent("sdk", P, [2])
    history.acknowledged([1], 0)
    history.resolved(1)
    history.resolved(2)
    read(history, "full", P, (0, 1))
    return history


def test_each_awaitable_has_one_outcome() -> None:
    assert check(awaited(), "full") == []


def test_awaitable_without_an_outcome() -> None:
    history = awaited()
    history.sent("sdk", P, [3])
    assert names(history) == {"unresolved"}


def test_awaitable_with_two_outcomes() -> None:
    history = awaited()
    history.resolved(2)
    assert names(history) == {"resolved-again"}
