"""What principals hold: connections, groups, producer ids, with a limit for each principal."""

from __future__ import annotations

import random

from kafkalite.model import Principal
from kafkalite.state.quotas.holdings import CHECK_MS, CHECKED_MAX, Holdings, IssuedIds, NameHoldings
from tests.unit.protocol.values import seed

ALICE, BOB, ADMIN = (Principal("User", name) for name in ("alice", "bob", "admin"))


def test_each_principal_has_its_own_limit() -> None:
    held: Holdings[int] = Holdings(2, [ADMIN])
    assert [held.acquire(ALICE, item) for item in range(3)] == [True, True, False]
    assert held.acquire(BOB, 3) and held.acquire(ALICE, 0), "an item that has an owner is not acquired again"
    assert [held.acquire(ADMIN, item) for item in range(10, 20)] == [True] * 10
    held.release(0)
    held.release(99)
    assert held.acquire(ALICE, 4) and not held.acquire(ALICE, 5)


def test_counts_are_those_of_a_set_per_principal_and_end_at_zero() -> None:
    dice = random.Random(seed())
    held: Holdings[int] = Holdings(5)
    expected: dict[Principal, set[int]] = {ALICE: set(), BOB: set()}
    for _ in range(2_000):
        principal, item = dice.choice([ALICE, BOB]), dice.randrange(20)
        owner = next((each for each, items in expected.items() if item in items), None)
        if dice.random() < 0.4:
            held.release(item)
            if owner is not None:
                expected[owner].discard(item)
        else:
            assert held.acquire(principal, item) is (owner is not None or len(expected[principal]) < 5)
            if owner is None and len(expected[principal]) < 5:
                expected[principal].add(item)
        assert {each: held.count(each) for each in expected} == {each: len(items) for each, items in expected.items()}
    for item in range(20):
        held.release(item)
    assert not held._owners and not held._items


def test_names_that_exist_without_an_owner_are_not_counted() -> None:
    names, existing = NameHoldings(1), {"old"}
    assert names.acquire(ALICE, "old", existing.__contains__, 0) and names.held.count(ALICE) == 0
    assert names.acquire(ALICE, "new", existing.__contains__, 0)
    existing.add("new")
    assert names.acquire(ALICE, "new", existing.__contains__, 0), "it exists"
    assert not names.acquire(ALICE, "more", existing.__contains__, 0)
    assert names.acquire(BOB, "more", existing.__contains__, 0)


def test_names_that_have_ended_are_released_at_the_limit() -> None:
    names, existing = NameHoldings(3), set[str]()
    for name in "abc":
        assert names.acquire(ALICE, name, existing.__contains__, 0)
        existing.add(name)
    checks: list[str] = []

    def exists(name: str) -> bool:
        checks.append(name)
        return name in existing

    assert not names.acquire(ALICE, "d", exists, 0) and len(checks) == 4
    existing.clear()
    assert not names.acquire(ALICE, "d", exists, CHECK_MS - 1), "not checked again so soon"
    assert names.acquire(ALICE, "d", exists, CHECK_MS)
    assert names.held.count(ALICE) == 1 and names.held.count(BOB) == 0
    assert names.acquire(BOB, "d", exists, CHECK_MS), "it was deleted, and has another owner now"
    assert names.held.count(ALICE) == 0 and names.held.count(BOB) == 1


def test_issued_ids_are_counted_for_a_time() -> None:
    ids = IssuedIds(2, [ADMIN], lambda: 1_000)
    assert [ids.acquire(ALICE, now_ms) for now_ms in (0, 500, 999, 1_000, 1_001, 1_500)] == [
        *(True, True, False, True, False, True)
    ]
    assert all(ids.acquire(ADMIN, 0) for _ in range(5)) and ids.acquire(BOB, 0)
    assert ids.count(ALICE, 10_000) == ids.count(BOB, 10_000) == 0 and not ids._issued


def test_ids_that_were_not_issued_are_not_counted() -> None:
    ids = IssuedIds(1, [ADMIN], lambda: 1_000)
    assert ids.acquire(ALICE, 0) and not ids.has_space(ALICE, 0)
    ids.give_back(ALICE)
    for principal in (ALICE, BOB, ADMIN):
        ids.give_back(principal)
        assert ids.count(principal, 0) == 0 and ids.has_space(principal, 0)
    assert not ids._issued


def test_time_of_issued_ids_is_dynamic() -> None:
    kept_ms = [1_000]
    ids = IssuedIds(1, [], lambda: kept_ms[0])
    assert ids.acquire(ALICE, 0) and not ids.has_space(ALICE, 500)
    kept_ms[0] = 500
    assert ids.has_space(ALICE, 500)


def test_one_check_visits_a_bounded_number_of_names_and_continues_there() -> None:
    count = 2 * CHECKED_MAX + 1
    names, existing = NameHoldings(count), {str(number) for number in range(count)}
    for name in sorted(existing, key=int):
        assert names.acquire(ALICE, name, lambda _name: False, 0)
    existing.remove(str(count - 1))
    checks: list[str] = []

    def exists(name: str) -> bool:
        checks.append(name)
        return name in existing

    admitted = [names.acquire(ALICE, "new", exists, number * CHECK_MS) for number in range(3)]
    assert admitted == [False, False, True] and len(checks) <= 3 * (CHECKED_MAX + 1)


def test_ended_names_of_all_principals_are_released_in_steps() -> None:
    names, existing = NameHoldings(CHECKED_MAX), set[str]()
    for number in range(2 * CHECKED_MAX):
        assert names.acquire((ALICE, BOB)[number % 2], str(number), existing.__contains__, 0)
    existing.update(map(str, range(10)))
    unknown = dict.fromkeys(map(str, range(10, 20)))
    left = [len(names.held) for _ in names.release_ended(lambda name: unknown.get(name, name in existing))]
    assert left == [CHECKED_MAX + 10, 10], "those whose existence is not known are released too"
    assert names.held.count(ALICE) == names.held.count(BOB) == 5
    existing.clear()
    assert len(list(names.release_ended(existing.__contains__))) == 1
    assert not names.held and not names.held._items
