"""The pure tree: failed transactions leave no trace, the same transactions give the same tree, taking back works."""

import random

import pytest

from kafkalite.coordination.errors import CoordinationError, NodeExistsError, SessionExpiredError
from kafkalite.coordination.tree import Create, Delete, Set, Tree, TreeChange
from tests.unit.coordination.kit import drive, picture, random_operations


def test_a_failed_transaction_leaves_no_trace(chance: random.Random) -> None:
    tree = Tree()
    session, failed = tree.open_session(), 0
    for now_ms in range(3000):
        before, zxid, ephemerals = picture(tree), tree.zxid, set(tree.sessions[session])
        try:
            tree.multi(random_operations(chance), session, now_ms)
        except CoordinationError:
            failed += 1
            assert (picture(tree), tree.zxid, tree.sessions[session]) == (before, zxid, ephemerals)
    assert 300 < failed < 2900
    owned = {path for path, (_, stat) in picture(tree).items() if stat.ephemeral_owner == session}
    assert owned == tree.sessions[session]


def test_transactions_can_be_undone(chance: random.Random) -> None:
    tree = Tree()
    session = tree.open_session()
    drive(tree, chance, 100)
    for _ in range(100):
        changes: list[TreeChange] = []
        before, zxid = picture(tree), tree.zxid
        for now_ms in range(10):
            try:
                tree.multi(random_operations(chance), session, now_ms, changes)
            except CoordinationError:
                continue
        tree.undo(changes)
        assert (picture(tree), tree.zxid) == (before, zxid)


def test_only_the_last_transactions_can_be_undone() -> None:
    tree, changes = Tree(), []
    session = tree.open_session()
    tree.multi([Create("/a")], session, 0, changes)
    tree.multi([Create("/b")], session, 0)
    with pytest.raises(AssertionError):
        tree.undo(changes)


def test_unknown_sessions_do_nothing() -> None:
    tree = Tree()
    with pytest.raises(SessionExpiredError):
        tree.multi([Create("/a")], 5, 0)
    with pytest.raises(SessionExpiredError):
        tree.close_session(5)
    assert tree.zxid == 0


def test_the_end_of_a_session_is_one_transaction() -> None:
    tree = Tree()
    one, other = tree.open_session(), tree.open_session()
    tree.multi([Create("/a", b"", True), Create("/b", b"", True), Create("/p")], one, 0)
    tree.multi([Create("/c", b"", True)], other, 0)
    zxid = tree.zxid
    tree.close_session(one)
    assert tree.zxid == zxid + 1 and sorted(picture(tree)) == ["/", "/c", "/p"]
    assert tree.root.pzxid == tree.zxid


def test_error_contains_the_index_of_the_operation() -> None:
    tree = Tree()
    with pytest.raises(NodeExistsError) as caught:
        tree.multi([Create("/a"), Set("/a", b""), Create("/a")], tree.open_session(), 0)
    assert (caught.value.at, caught.value.path) == (2, "/a")


def test_forgotten_watches_leave_nothing_behind() -> None:
    tree = Tree()
    session = tree.open_session()
    for number in range(100):
        tree.exists(f"/never{number}", print, session)
        tree.children("/", print, session)
    tree.multi([Create("/a"), Delete("/a")], session, 0)
    tree.close_session(session)
    assert len(tree.data_watches) == len(tree.child_watches) == 0
    assert tree.data_watches.count(session) == tree.child_watches.count(session) == 0


def test_watch_belongs_to_the_session_that_has_set_it_last() -> None:
    tree = Tree()
    first, second = tree.open_session(), tree.open_session()
    events: list[object] = []
    for session in (first, second):
        tree.get("/", events.append, session)
    tree.close_session(first)
    assert tree.data_watches.count(second) == 1
    tree.close_session(second)
    assert len(tree.data_watches) == 0
