"""The machine of a ZooKeeper-era consumer, step by step on a tree without delays."""

from collections.abc import Callable
from typing import Any

import pytest
from kafkalite_sdk.zk.membership import effects as out
from kafkalite_sdk.zk.membership.errors import (
    ConsumerIdInUseError,
    ConsumerRebalanceFailedError,
    OffsetCommitError,
    ReleaseTimeoutError,
    SessionLostError,
)
from kafkalite_sdk.zk.membership.machine import Membership
from kafkalite_sdk.zk.membership.settings import MembershipSettings
from kafkalite_sdk.zk.membership.subscription import filtered_subscription, static_subscription

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import ConnectionLossError, CoordinationError, NoAuthError, NoNodeError
from kafkalite.coordination.tree import Create, Delete, Set, Tree
from kafkalite.coordination.znodes import TopicNode, encode_topic
from kafkalite.coordination.znodes.fields import ZnodeError
from kafkalite.model import TopicPartition

CONSUMER = "g_host-1-0"
ID = f"/consumers/g/ids/{CONSUMER}"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Driver:
    """Executes the effects of a machine at once; what a test wants to hold is in `held`."""

    def __init__(self, tree: Tree | None = None, **settings: Any) -> None:
        self.tree = tree or new_tree()
        self.admin = self.tree.open_session()
        subscription = settings.pop("subscription", static_subscription({"t": 1}))
        self.machine = Membership(MembershipSettings("g", CONSUMER, subscription)._replace(**settings))
        self.now = 0.0
        self.session = 0
        self.offsets: dict[TopicPartition, int] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.seen: list[out.Effect] = []
        self.held: list[Any] = []
        self.holds: Callable[[Any], bool] = lambda effect: False
        self.fails: Callable[[Any], CoordinationError | None] = lambda call: None
        self.commit_error: Exception | None = None

    def start(self) -> "Driver":
        self.session = self.tree.open_session()
        self.machine.established(self.session, 1_700_000_000_000, self.now)
        return self.run()

    def run(self) -> "Driver":
        while effects := self.machine.take_effects():
            for effect in effects:
                self.seen.append(effect)
                if self.holds(effect):
                    self.held.append(effect)
                else:
                    self.execute(effect)
        return self

    def execute(self, effect: Any) -> None:
        if isinstance(effect, out.Operation):
            self._operate(effect)
        elif isinstance(effect, out.Release):
            positions, self.positions = self.positions, {}
            self.machine.released(effect.token, positions, self.now)
        elif isinstance(effect, out.ReadPositions):
            self.machine.positions_read(effect.token, dict(self.positions), self.now)
        elif isinstance(effect, out.CommitOffsets):
            if self.commit_error is None:
                self.offsets |= effect.offsets
            self.machine.committed(effect.token, Outcome(error=self.commit_error), self.now)
        elif isinstance(effect, out.ReadOffsets):
            found = {each: self.offsets.get(each) for each in effect.partitions}
            self.machine.offsets_read(effect.token, Outcome(found), self.now)
        elif isinstance(effect, out.Fetch):
            self.positions = {each: start.offset or 0 for each, start in effect.partitions.items()}

    def release_held(self) -> None:
        """Execute what was held."""
        held, self.held, self.holds = self.held, [], lambda effect: False
        for effect in held:
            self.execute(effect)
        self.run()

    def advance(self, seconds: float) -> "Driver":
        """Let time pass, with the deadlines of the machine."""
        end = self.now + seconds
        while (deadline := self.machine.deadline) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.machine.expire(self.now)
            self.run()
        self.now = end
        return self

    def change(self, *operations: Any) -> "Driver":
        """A change of another client."""
        self.tree.multi(operations, self.admin, 0)
        self.send_events()
        return self.run()

    def send_events(self) -> None:
        for watcher, event in self.tree.take_fired():
            watcher(event)

    def of(self, kind: type) -> list[Any]:
        return [effect for effect in self.seen if isinstance(effect, kind)]

    def _operate(self, effect: out.Operation) -> None:
        call: Any = effect.call
        try:
            error = self.fails(call)
            if error is not None:
                raise error
            outcome = Outcome(self._call(call, effect.token))
        except CoordinationError as error:
            outcome = Outcome(error=error)
        self.machine.completed(effect.token, outcome, self.now)
        self.send_events()

    def _call(self, call: Any, token: int) -> Any:
        if isinstance(call, out.Get | out.Exists | out.Children):
            watcher = (lambda event: self.machine.fired(token, self.now)) if call.watch else None
            read: Any = {out.Get: self.tree.get, out.Exists: self.tree.exists, out.Children: self.tree.children}
            return read[type(call)](call.path, watcher, self.session)
        if type(call) is tuple:
            return self.tree.multi(call, self.session, 0)
        return self.tree.multi([call], self.session, 0)[0]


def new_tree(partitions: int = 2) -> Tree:
    tree = Tree()
    session = tree.open_session()
    node = encode_topic(TopicNode(None, dict.fromkeys(range(partitions), (0,))))
    paths = ("/brokers", "/brokers/ids", "/brokers/ids/0", "/brokers/topics")
    tree.multi([*map(Create, paths), Create("/brokers/topics/t", node)], session, 0)
    return tree


def registration(**fields: Any) -> bytes:
    return str({"version": 1, "subscription": {"t": 1}, "pattern": "static", **fields}).replace("'", '"').encode()


def test_registers_owns_and_fetches() -> None:
    driver = Driver()
    driver.offsets[T1] = 7
    driver.start()
    data, stat = driver.tree.get(ID)
    assert data == b'{"version":1,"subscription":{"t":1},"pattern":"static","timestamp":"1700000000000"}'
    assert stat.ephemeral_owner == driver.session
    assert driver.tree.get("/consumers/g/owners/t/0")[0] == f"{CONSUMER}-0".encode()
    [fetch] = driver.of(out.Fetch)
    assert fetch.partitions == {T0: out.FetchStart(0, None), T1: out.FetchStart(0, 7)}


def test_owners_of_a_rebalance_are_one_multi() -> None:
    driver = Driver().start()
    claims = [effect.call for effect in driver.of(out.Operation) if type(effect.call) is tuple]
    assert [len(claim) for claim in claims] == [2, 2]  # the first one finds no parents


def test_change_that_does_not_concern_the_member_stops_nothing() -> None:
    driver = Driver().start()
    driver.change(Create("/consumers/g/ids/g_other-1-1", registration(subscription={"z": 1})))
    driver.change(Set("/brokers/topics/t", driver.tree.get("/brokers/topics/t")[0]))
    assert len(driver.of(out.Fetch)) == 1
    assert not driver.of(out.Release)


def test_member_that_joins_takes_its_share() -> None:
    driver = Driver().start()
    driver.positions[T0] = 5
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    assert driver.of(out.Fetch)[-1].partitions == {T0: out.FetchStart(0, 5)}
    assert driver.tree.find("/consumers/g/owners/t/1") is None
    kinds = [type(effect) for effect in driver.seen if not isinstance(effect, out.Operation)]
    assert kinds[-4:] == [out.Release, out.CommitOffsets, out.ReadOffsets, out.Fetch]


def test_garbage_of_other_members_is_reported_with_its_path() -> None:
    driver = Driver().start()
    driver.change(Create("/consumers/g/ids/bad", b"\xff"), Create("/consumers/g/ids/lookahead", b"{}"))
    texts = [str(problem.error) for problem in driver.of(out.Problem)]
    assert any("/consumers/g/ids/bad: not JSON" in text for text in texts)
    assert len(driver.of(out.Fetch)) == 1
    pattern = registration(subscription={"(?!x)": 1}, pattern="white_list")
    driver.change(Create("/consumers/g/ids/java", pattern))
    assert "/consumers/g/ids/java: pattern '(?!x)': RE2 rejects it" in str(driver.of(out.Problem)[-1].error)


def test_garbage_of_a_topic_is_reported_and_others_continue() -> None:
    driver = Driver(subscription=filtered_subscription(".*", 1, whitelist=True)).start()
    driver.change(Create("/brokers/topics/bad", b"{}"))
    assert "/brokers/topics/bad" in str(driver.of(out.Problem)[-1].error)
    assert set(driver.of(out.Fetch)[-1].partitions) == {T0, T1}


def test_deleted_topic_is_released_and_a_new_one_is_fetched() -> None:
    driver = Driver().start()
    data = driver.tree.get("/brokers/topics/t")[0]
    driver.change(Delete("/brokers/topics/t"))
    assert driver.of(out.Fetch)[-1].partitions == {}
    driver.change(Create("/brokers/topics/t", data))
    assert set(driver.of(out.Fetch)[-1].partitions) == {T0, T1}


def test_without_brokers_the_member_waits_for_them() -> None:
    driver = Driver()
    driver.change(Delete("/brokers/ids/0"))
    driver.start()
    assert not driver.of(out.Fetch)
    driver.change(Create("/brokers/ids/0"))
    assert len(driver.of(out.Fetch)) == 1


def test_read_only_tree_is_one_error() -> None:
    driver = Driver()
    driver.fails = lambda call: NoAuthError(call.path) if isinstance(call, Create) else None
    driver.start()
    [failed] = driver.of(out.Failed)
    assert isinstance(failed.error, NoAuthError)
    assert failed.error.path == "/consumers/g/ids/" + CONSUMER or "/consumers" in str(failed.error)
    assert driver.machine.deadline is None


def test_chroot_that_does_not_exist_is_one_error() -> None:
    driver = Driver()
    driver.fails = lambda call: NoNodeError(call.path) if isinstance(call, Create) else None
    driver.start()
    assert "the chroot of zookeeper.connect does not exist" in str(driver.of(out.Failed)[0].error)


def test_consumer_id_of_another_session_is_one_error_after_two_session_timeouts() -> None:
    driver = Driver()
    for path in ("/consumers", "/consumers/g", "/consumers/g/ids"):
        driver.change(Create(path))
    driver.change(Create(ID, b"", ephemeral=True))
    driver.start()
    driver.advance(11.9)
    assert not driver.of(out.Failed), "ZooKeeper may end the session of a killed process after 8 s"
    driver.advance(0.2)
    assert isinstance(driver.of(out.Failed)[0].error, ConsumerIdInUseError)
    assert driver.tree.find(ID) is not None


def test_consumer_id_of_the_former_process_is_waited_for() -> None:
    driver = Driver()
    for path in ("/consumers", "/consumers/g", "/consumers/g/ids"):
        driver.change(Create(path))
    driver.change(Create(ID, b"", ephemeral=True))
    driver.start().advance(3)
    driver.change(Delete(ID))
    assert len(driver.of(out.Fetch)) == 1


def test_owner_of_another_member_fails_the_rebalance_after_all_attempts() -> None:
    driver = Driver()
    for path in ("/consumers", "/consumers/g", "/consumers/g/owners", "/consumers/g/owners/t"):
        driver.change(Create(path))
    driver.change(Create("/consumers/g/owners/t/1", b"g_other-1-0"))
    driver.start().advance(7.9)
    assert not driver.of(out.Failed)
    driver.advance(0.2)
    [failed] = driver.of(out.Failed)
    assert isinstance(failed.error, ConsumerRebalanceFailedError)
    assert "/consumers/g/owners/t/1" in str(failed.error)
    assert driver.tree.find(ID) is None
    assert driver.tree.find("/consumers/g/owners/t/0") is None


def test_claim_is_repeated_as_soon_as_the_owner_is_deleted() -> None:
    driver = Driver()
    for path in ("/consumers", "/consumers/g", "/consumers/g/owners", "/consumers/g/owners/t"):
        driver.change(Create(path))
    driver.change(Create("/consumers/g/owners/t/1", b"g_other-1-0"))
    driver.start().advance(0.5)
    driver.change(Delete("/consumers/g/owners/t/1"))
    assert len(driver.of(out.Fetch)) == 1


def test_claim_without_a_response_is_read_back() -> None:
    driver = Driver().start()
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))

    def fail(call: Any) -> CoordinationError | None:
        if type(call) is tuple and isinstance(call[0], Create):
            driver.tree.multi(call, driver.session, 0)  # the change was made
            driver.machine.suspended(driver.now)
            driver.fails = lambda call: None
            return ConnectionLossError()
        return None

    driver.fails = fail
    driver.change(Delete("/consumers/g/ids/g_host-2-0"))
    assert len(driver.of(out.Fetch)) == 2
    driver.machine.resumed(driver.now)
    driver.run()
    assert set(driver.of(out.Fetch)[-1].partitions) == {T0, T1}


def test_lost_session_releases_at_once_and_registers_again() -> None:
    driver = Driver().start()
    driver.positions[T0] = 9
    driver.tree.close_session(driver.session)
    driver.tree.take_fired()
    driver.machine.lost(driver.now)
    driver.run()
    [release] = driver.of(out.Release)
    assert release.lost
    assert not driver.of(out.CommitOffsets)
    driver.start()
    assert driver.of(out.Fetch)[-1].partitions[T0] == out.FetchStart(0, None)
    assert driver.tree.get(ID)[1].ephemeral_owner == driver.session


def test_suspended_session_keeps_its_partitions_for_the_session_timeout() -> None:
    driver = Driver().start()
    driver.machine.suspended(driver.now)
    driver.advance(5.9)
    assert not driver.of(out.Release)
    driver.advance(0.2)
    assert driver.of(out.Release)[0].lost
    driver.machine.resumed(driver.now)
    driver.run()
    assert set(driver.of(out.Fetch)[-1].partitions) == {T0, T1}


def test_nothing_is_committed_while_the_session_is_suspended() -> None:
    driver = Driver().start()
    driver.machine.suspended(driver.now)
    ticket = driver.machine.commit(driver.now)
    driver.run().advance(1)
    assert not driver.of(out.CommitOffsets)
    driver.machine.resumed(driver.now)
    driver.run()
    assert driver.of(out.CommitDone) == [out.CommitDone(ticket, None)]


def test_commit_fails_when_the_session_is_lost() -> None:
    driver = Driver().start()
    driver.machine.suspended(driver.now)
    driver.machine.commit(driver.now)
    driver.machine.lost(driver.now)
    driver.run()
    assert isinstance(driver.of(out.CommitDone)[0].error, SessionLostError)


def test_commits_are_repeated_and_then_fail() -> None:
    driver = Driver().start()
    driver.commit_error = OSError("planned")
    driver.machine.commit(driver.now)
    driver.run().advance(4.9)
    assert len(driver.of(out.CommitOffsets)) == 5
    driver.advance(0.2)
    assert len(driver.of(out.CommitOffsets)) == 6
    assert driver.of(out.CommitDone)[0].error is driver.commit_error


def test_failed_partitions_are_committed_again() -> None:
    driver = Driver().start()
    driver.holds = lambda effect: isinstance(effect, out.CommitOffsets)
    driver.machine.commit(driver.now)
    [commit] = driver.run().held
    driver.machine.committed(commit.token, Outcome({T1: OSError("planned")}), driver.now)
    driver.run().advance(1)
    assert driver.held[-1].offsets == {T1: 0}


def test_automatic_commits() -> None:
    driver = Driver(auto_commit_interval_s=10.0).start()
    driver.positions[T0] = 3
    driver.advance(9)
    assert not driver.offsets
    driver.advance(2)
    assert driver.offsets[T0] == 3
    driver.advance(30)
    assert len(driver.of(out.CommitOffsets)) == 4


def test_manual_commits_are_not_extended_by_a_release() -> None:
    driver = Driver(auto_commit_interval_s=None).start()
    driver.positions[T0] = 3
    driver.holds = lambda effect: isinstance(effect, out.CommitOffsets)
    driver.machine.commit(driver.now)
    driver.run()
    driver.positions[T0] = 8  # returned after the call
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    assert len(driver.of(out.Fetch)) == 1, "the release waits for the commit"
    driver.release_held()
    assert driver.offsets[T0] == 3
    assert driver.of(out.Fetch)[-1].partitions == {T0: out.FetchStart(0, 3)}


def test_manual_commit_that_fails_is_completed_by_the_release() -> None:
    driver = Driver(auto_commit_interval_s=None).start()
    driver.positions[T0] = 3
    driver.commit_error = OSError("planned")
    driver.machine.commit(driver.now)
    driver.run()
    driver.commit_error = None
    driver.positions[T0] = 8
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    assert driver.offsets[T0] == 3
    assert driver.of(out.CommitDone)[0].error is None


def test_manual_commit_during_a_release_has_the_positions_of_the_release() -> None:
    driver = Driver(auto_commit_interval_s=None).start()
    driver.positions[T0] = 3
    driver.commit_error = OSError("planned")
    driver.machine.commit(driver.now)  # is repeated later
    driver.run()
    driver.commit_error = None
    driver.positions[T0] = 8
    driver.holds = lambda effect: isinstance(effect, out.Release)
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    driver.machine.commit(driver.now)
    driver.release_held()
    assert driver.offsets[T0] == 8
    assert [done.error for done in driver.of(out.CommitDone)] == [None, None]


def test_storage_that_does_not_answer_ends_the_commit() -> None:
    driver = Driver().start()
    driver.holds = lambda effect: isinstance(effect, out.CommitOffsets)
    driver.machine.commit(driver.now)
    driver.run().advance(12.1)
    assert isinstance(driver.of(out.CommitDone)[0].error, OffsetCommitError)


def test_offsets_that_are_not_read_are_read_again() -> None:
    driver = Driver()
    driver.holds = lambda effect: isinstance(effect, out.ReadOffsets)
    driver.start()
    driver.machine.offsets_read(driver.held.pop().token, Outcome(error=OSError("planned")), driver.now)
    driver.run().advance(2.1)
    driver.release_held()
    assert len(driver.of(out.Fetch)) == 1


def test_invalid_offset_is_reported_and_others_are_fetched() -> None:
    driver = Driver()
    driver.offsets[T1] = ZnodeError("/consumers/g/offsets/t/1: not an offset")  # type: ignore[assignment]
    driver.start()
    assert set(driver.of(out.Fetch)[0].partitions) == {T0}
    assert "/consumers/g/offsets/t/1" in str(driver.of(out.Problem)[-1].error)
    assert driver.tree.find("/consumers/g/owners/t/1") is not None


def test_shutdown_commits_and_deletes_owners_and_id() -> None:
    driver = Driver().start()
    driver.positions[T0] = 4
    driver.machine.shut_down(driver.now)
    driver.run()
    assert driver.offsets[T0] == 4
    assert isinstance(driver.seen[-1], out.Ended)
    assert not driver.tree.sessions[driver.session]
    driver.machine.shut_down(driver.now)
    assert driver.machine.take_effects() == []


def test_shutdown_without_a_session_ends_in_time() -> None:
    driver = Driver().start()
    driver.machine.suspended(driver.now)
    driver.machine.shut_down(driver.now)
    driver.run().advance(8.1)
    assert isinstance(driver.seen[-1], out.Failed)
    assert driver.of(out.Release)


def test_listener_that_does_not_return_fails_the_consumer() -> None:
    driver = Driver().start()
    driver.holds = lambda effect: isinstance(effect, out.Release)
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    driver.advance(17)
    assert isinstance(driver.of(out.Failed)[0].error, ReleaseTimeoutError)


def test_deleted_registration_is_created_again() -> None:
    driver = Driver().start()
    driver.change(Delete(ID))
    assert driver.tree.get(ID)[1].ephemeral_owner == driver.session
    assert not driver.of(out.Release)


def test_owner_that_was_replaced_is_not_deleted() -> None:
    driver = Driver().start()
    path = "/consumers/g/owners/t/1"
    driver.change(Delete(path), Create(path, b"g_other-1-0"))
    driver.change(Create("/consumers/g/ids/g_host-2-0", registration()))
    assert driver.tree.get(path)[0] == b"g_other-1-0"
    assert any(path in str(problem.error) for problem in driver.of(out.Problem))


@pytest.mark.parametrize("kind", ["established", "lost", "suspended", "resumed", "fired", "completed"])
def test_inputs_after_the_end_are_ignored(kind: str) -> None:
    driver = Driver().start()
    driver.machine.shut_down(driver.now)
    driver.run()
    arguments: dict[str, tuple[Any, ...]] = {"established": (9, 0), "fired": (1,), "completed": (1, Outcome())}
    getattr(driver.machine, kind)(*arguments.get(kind, ()), driver.now)
    assert driver.machine.take_effects() == []
