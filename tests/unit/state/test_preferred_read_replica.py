"""Which replica the consumers in a rack read from (RackAwareReplicaSelector)."""

from kafkalite.state.isr.preferred_read_replica import LEADER, ReadCandidate, choose_in_rack

BEHIND = ReadCandidate(2, "a", 9, 50)
AHEAD = ReadCandidate(3, "a", 10, 20)
LATER = ReadCandidate(4, "a", 10, 30)
TWIN = ReadCandidate(5, "a", 10, 30)
OTHER = ReadCandidate(6, "b", 99, 99)
NO_RACK = ReadCandidate(7, None, 99, 99)


def test_leader_is_preferred_in_its_own_rack() -> None:
    assert choose_in_rack("a", "a", [AHEAD]) == LEADER


def test_follower_of_another_rack_is_never_chosen() -> None:
    assert choose_in_rack("a", None, [OTHER, NO_RACK]) == LEADER


def test_most_records_then_the_latest_time_then_the_largest_id_decide() -> None:
    assert choose_in_rack("a", "c", [BEHIND, AHEAD, OTHER]) == 3
    assert choose_in_rack("a", "c", [LATER, AHEAD]) == 4
    assert choose_in_rack("a", "c", [TWIN, LATER]) == 5
