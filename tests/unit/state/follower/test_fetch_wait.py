"""The waits of the fetches of a follower, before and after a response without records that is early."""

from kafkalite.state.follower.fetch_wait import SHORT_MS, FetchWait

CONFIGURED_MS = 500


def fetches(wait: FetchWait, count: int, *, early: bool, is_empty: bool = True) -> list[int]:
    """Make fetches; each response comes at once, or after the wait. Returns the waits."""
    now, found = 0.0, []
    for _ in range(count):
        found.append(wait.begin(CONFIGURED_MS, now))
        now += 0.001 if early else found[-1] / 1000 + 0.001
        wait.end(now, is_empty=is_empty)
    return found


def test_waits_are_as_configured_while_no_response_is_early() -> None:
    wait = FetchWait()
    assert fetches(wait, 3, early=False) == [CONFIGURED_MS] * 3
    assert fetches(wait, 3, early=True, is_empty=False) == [CONFIGURED_MS] * 3


def test_waits_after_an_early_response_without_records_are_short_and_double() -> None:
    wait = FetchWait()
    assert fetches(wait, 3, early=True) == [CONFIGURED_MS, SHORT_MS, SHORT_MS]
    assert fetches(wait, 8, early=False) == [10, 20, 40, 80, 160, 320, CONFIGURED_MS, CONFIGURED_MS]


def test_records_do_not_change_the_wait() -> None:
    wait = FetchWait()
    fetches(wait, 1, early=True)
    assert fetches(wait, 2, early=True, is_empty=False) == [SHORT_MS, SHORT_MS]
