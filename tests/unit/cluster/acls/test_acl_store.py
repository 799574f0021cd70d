"""ACLs are changed by compare-and-set, applied when they are durable, and read again after failures."""

from functools import partial
from math import inf
from typing import Any

import pytest

from kafkalite.clock import Outcome
from kafkalite.cluster.acls.changes import AclChange, Acls, Changed
from kafkalite.cluster.acls.follower import acl_follower
from kafkalite.cluster.acls.nodes import decode, encode, path_of
from kafkalite.cluster.acls.store import AclStore, with_added
from kafkalite.cluster.compare_and_set import ATTEMPTS_MAX, NODE_BYTES_MAX
from kafkalite.cluster.node_store import RETRY_S
from kafkalite.coordination.errors import ConnectionLossError
from kafkalite.coordination.znodes.acls import EXTENDED_CHANGES, LITERAL_CHANGES
from kafkalite.errors import KafkaErrorCode
from kafkalite.state.authorizer.acls import (
    Acl,
    AclBinding,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    PermissionType,
    ResourcePattern,
)
from kafkalite.state.authorizer.standard import StandardAuthorizer
from tests.unit.cluster.configs.test_quota_writes import DelayedSession
from tests.unit.cluster.controller.kit import Service

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.LITERAL)
ALICE, BOB = (Acl(f"User:{name}", "*", AclOperation.READ, PermissionType.ALLOW) for name in ("alice", "bob"))
ADD_ALICE = partial(with_added, [ALICE])


class Tree:
    """The ACLs of a broker over a session whose responses can be lost, and the tree below."""

    def __init__(self) -> None:
        self.service = Service()
        self.session = self.service.connect()
        self.clock = self.service.clock
        self.store = AclStore(self.session, StandardAuthorizer(), self.clock, notify=True)
        self.store.load(Outcome.result)

    def create(self, *acls: Acl) -> list[Any]:
        ends: list[Any] = []
        for _ in self.store.create([AclBinding(ORDERS, each) for each in acls], ends.extend):
            pass
        return ends

    def delete(self) -> list[Any]:
        ends: list[Any] = []
        wanted = AclFilter(AclResourceType.TOPIC, "orders", PatternType.LITERAL)
        for _ in self.store.delete([wanted], ends.extend):
            pass
        (deleted,) = ends
        return [(binding.acl, refusal) for binding, refusal in deleted]

    def stored(self) -> Acls | None:
        path = path_of(ORDERS)
        return decode(path, self.service.data(path)) if self.service.exists(path) else None

    def applied(self) -> set[Acl]:
        return set(self.store.authorizer.acls_of(ORDERS))


def change(session: Any, change: Any = ADD_ALICE) -> list[Changed]:
    ends: list[Changed] = []
    AclChange(session, ORDERS, change, notify=True, then=ends.append).start()
    return ends


def test_changes_are_stored_applied_and_notified() -> None:
    tree = Tree()
    assert tree.create(ALICE, BOB) == [None, None]
    assert set(tree.stored() or ()) == tree.applied() == {ALICE, BOB}
    assert tree.create(ALICE) == [None], "nothing changes"
    assert sorted(tree.delete()) == [(ALICE, None), (BOB, None)]
    assert tree.stored() is None and not tree.applied()
    names = tree.service.do(partial(tree.service.admin.children, LITERAL_CHANGES))[0]
    assert len(names) == 2


@pytest.mark.parametrize("executed", [True, False])
def test_change_is_read_back_after_a_lost_response(executed: bool) -> None:
    for step in ("create", "change", "delete"):
        tree = Tree()
        if step != "create":
            tree.create(BOB)
        before = tree.stored()
        tree.session.lose, tree.session.executed = 1, executed
        refusals = [each for _, each in tree.delete()] if step == "delete" else tree.create(ALICE)
        assert [each and each.error for each in refusals] == [None if executed else KafkaErrorCode.KAFKA_STORAGE_ERROR]
        assert (tree.stored() != before) is executed, step
        assert tree.applied() == set(tree.stored() or ()), step


def test_change_is_computed_again_after_a_conflict() -> None:
    tree = Tree()
    tree.create(BOB)
    session = DelayedSession(tree.session)
    ends = change(session)
    session.step()  # it has read the node, then another broker deletes it
    tree.service.delete(path_of(ORDERS))
    while session.calls:
        session.step()
    assert ends == [Changed(None, (), (ALICE,))] and tree.stored() == (ALICE,)


@pytest.mark.parametrize("deleted", [False, True])
def test_change_during_a_read_of_all_nodes_is_kept(deleted: bool) -> None:
    """The names were read before it, so the read does not have it."""
    tree = Tree()
    if deleted:
        tree.create(BOB)
        list(tree.store.create([AclBinding(ORDERS._replace(name="payments"), BOB)], lambda _: None))
    reading, loads = DelayedSession(tree.session), list[Outcome]()
    tree.store._session = reading

    def steps(count: float = inf) -> int:
        """Read all nodes with at most so many calls; their number."""
        tree.store.load(loads.append)
        done = 0
        while reading.calls and done < count:
            reading.step()
            done += 1
        return done

    steps(steps() - 1)
    assert len(loads) == 1 and len(reading.calls) == 1, "the second read lacks its last call"
    tree.store._session = tree.session
    assert [refusal for _, refusal in tree.delete()] == [None] if deleted else tree.create(ALICE) == [None]
    reading.step()
    assert [each.error for each in loads] == [None, None]
    assert tree.applied() == set(tree.stored() or ()) == (set() if deleted else {ALICE})


def test_change_that_is_always_overtaken_ends() -> None:
    tree = Tree()
    tree.create(BOB)

    session = DelayedSession(tree.session)
    ends = change(session)
    while session.calls:
        tree.service.write(path_of(ORDERS), encode([BOB]))
        session.step()
    (end,) = ends
    assert end.refusal is not None and end.refusal.error == KafkaErrorCode.REQUEST_TIMED_OUT
    assert "the ACLs of this resource are changed by others all the time" in str(end.refusal.message)
    assert len(tree.session.sent) == 1 + ATTEMPTS_MAX and tree.stored() == (BOB,)


def test_node_above_the_limit_is_refused() -> None:
    tree = Tree()
    large = [ALICE._replace(host=f"{at}" + 32_000 * "x") for at in range(32)]
    (end,) = change(tree.session, partial(with_added, large))
    assert end.refusal is not None and end.refusal.error == KafkaErrorCode.INVALID_REQUEST
    assert f"allowed are {NODE_BYTES_MAX}" in str(end.refusal.message) and tree.stored() is None


def test_change_that_raises_is_refused_and_raised() -> None:
    tree = Tree()
    ends: list[Changed] = []
    broken = AclChange(tree.session, ORDERS, lambda _acls: 1 / 0, notify=True, then=ends.append)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        broken.start()
    assert [each.refusal and each.refusal.error for each in ends] == [KafkaErrorCode.UNKNOWN_SERVER_ERROR]


def test_node_that_cannot_be_read_is_kept_and_denies(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree()
    tree.service.write(path_of(ORDERS), b"{")
    (refusal,) = tree.create(ALICE)
    assert refusal.error == KafkaErrorCode.INVALID_REQUEST and tree.service.data(path_of(ORDERS)) == b"{"
    tree.store.refresh(ORDERS)
    assert list(tree.store.authorizer.invalid) == [ORDERS] and "all access to" in caplog.text
    tree.service.delete(path_of(ORDERS))
    tree.store.reload()
    assert not tree.store.authorizer.invalid


class Failing:
    """A session whose reads of nodes fail, as long as `failures` says."""

    def __init__(self, session: Any, failures: int) -> None:
        self._session = session
        self.failures = failures

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def get(self, path: str, then: Any, watch: Any = None) -> None:
        if self.failures:
            self.failures -= 1
            then(Outcome(error=ConnectionLossError(path)))
        else:
            self._session.get(path, then, watch)


def test_failed_read_is_repeated(caplog: pytest.LogCaptureFixture) -> None:
    tree = Tree()
    tree.service.write(path_of(ORDERS), encode([ALICE]))
    read: list[None] = []
    tree.store._session = Failing(tree.session, failures=2)
    tree.store.reload(lambda: read.append(None))
    tree.clock.advance(int(RETRY_S * 1000))
    assert not read and not tree.applied() and "the ACLs cannot be read, next attempt in 0.5 s" in caplog.text
    tree.clock.advance(int(RETRY_S * 1000))
    assert read == [None] and tree.applied() == {ALICE}


def test_all_are_read_once_both_subjects_are_watched() -> None:
    tree, reads = Tree(), list[None]()
    tree.session.held = {}
    follower = acl_follower(tree.store, tree.session, tree.clock, lambda: reads.append(None))
    follower.start()
    assert set(tree.session.held) == {EXTENDED_CHANGES, LITERAL_CHANGES} and not reads
    while not reads:
        tree.session.release()
    tree.session.held = None
    other = AclStore(tree.service.connect(), StandardAuthorizer(), tree.clock, notify=True)
    for _ in other.create([AclBinding(ORDERS, ALICE)], lambda _refusals: None):
        pass
    assert tree.applied() == {ALICE}, "the notification names the pattern"
    follower.close()
