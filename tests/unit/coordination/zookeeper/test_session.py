"""The session against a fake server, in virtual time: what it sends and reports, and when."""

import logging
import ssl
from itertools import pairwise
from typing import Any
from unittest.mock import ANY

import pytest

from kafkalite.coordination.errors import (
    AuthenticationError,
    BadArgumentsError,
    BadVersionError,
    ConnectionLossError,
    SessionExpiredError,
    TlsError,
)
from kafkalite.coordination.tree import Check, Create, CreatedNode, Set, WatchEvent
from kafkalite.coordination.zookeeper import records
from kafkalite.coordination.zookeeper.access import Access, kafka_acl
from kafkalite.coordination.zookeeper.codec import SIZE
from kafkalite.coordination.zookeeper.session import FRAME_BYTES_MAX, NEW_SESSION, SessionKey
from kafkalite.testing.fake_zookeeper import FakeZooKeeper
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.zookeeper_proxy import CONNECT, EVENT, REQUEST, RESPONSE, Fault, Stage
from tests.unit.coordination.zookeeper.rig import HOST, PORT, TIMEOUT_MS, Rig, virtually

RECONNECT_S = 0.25


class TestCalls:
    @virtually
    async def test_calls_are_pipelined_and_responses_keep_their_order(self) -> None:
        rig = Rig(seed=1, fragment_bytes=7)
        session = await rig.connected()
        session.create("/a", b"x", rig.note("create"))
        session.exists("/b", rig.note("exists"), rig.watch)
        session.multi((Set("/a", b"y", 0), Create("/b"), Check("/a", 7)), rig.note("refused"))
        session.multi((Set("/a", b"y", 0), Create("/b"), Check("/a", 1)), rig.note("multi"))
        session.children("/", rig.note("children"))
        await pass_time(0.1)
        names = [name for name, _ in rig.log]
        assert names == ["create", "exists", "refused", "created", "multi", "children"]
        assert rig.log[2][1] is BadVersionError and rig.log[-1][1][0] == ["a", "b"]

    @virtually
    async def test_calls_above_the_limit_in_flight_wait_in_their_order(self) -> None:
        rig = Rig()
        session = await rig.connected(in_flight_max=3)
        rig.proxy.break_at(RESPONSE, "Create2Request", Fault.STALL)
        for number in range(5):
            session.create(f"/{number}", b"", rig.note(f"create {number}"))
        session.exists("/4", rig.note("exists"))
        await pass_time(0.1)
        assert [each.path for each in rig.sent(records.Create2Request)] == ["/0", "/1", "/2"]
        rig.proxy.break_now(Fault.FIN)
        assert await rig.events_within(RECONNECT_S) == [
            "suspended", *((f"create {number}", ConnectionLossError) for number in range(5)),
            "resumed", ("exists", None),
        ]  # fmt: skip
        assert rig.server.tree.find("/2") is not None and rig.server.tree.find("/3") is None, "what waited was not sent"

    @virtually
    async def test_every_call_is_sent_when_those_before_it_have_returned(self) -> None:
        rig = Rig()
        session = await rig.connected(in_flight_max=2)
        order: list[str] = []
        for number in range(7):
            session.create(f"/{number}", b"", lambda outcome: order.append(outcome.value.path))
        session.close(rig.note("close"))
        assert await rig.events_within(0.1) == [("close", None)]
        assert order == [f"/{number}" for number in range(7)]

    @pytest.mark.parametrize("fault", (Fault.FIN, Fault.RST))
    @virtually
    async def test_calls_that_wait_while_the_session_closes_end_with_its_connection(self, fault: Fault) -> None:
        rig = Rig()
        session = await rig.connected(in_flight_max=1)
        rig.proxy.break_at(RESPONSE, "Create2Request", fault)
        session.create("/a", b"", rig.note("create"))
        session.exists("/a", rig.note("exists"))
        session.close(rig.note("close"))
        assert await rig.events_within(1.0) == [
            ("create", ConnectionLossError), ("exists", ConnectionLossError), ("close", ConnectionLossError),
        ]  # fmt: skip

    @virtually
    async def test_request_above_the_limit_of_the_server_is_rejected_before_it_is_sent(self) -> None:
        rig = Rig()
        session = await rig.connected()
        session.create("/a", bytes(1 << 20), rig.note("create"))
        session.multi([Create(f"/{n}", bytes(100_000)) for n in range(11)], rig.note("multi"))
        session.exists("/a", rig.note("exists"))
        assert rig.take() == [("create", BadArgumentsError), ("multi", BadArgumentsError)]
        assert await rig.events_within(0.1) == [("exists", None)]

    @virtually
    async def test_created_node_without_data_has_null_data(self) -> None:
        rig = Rig()
        session = await rig.connected()
        session.create("/a", b"", rig.note("create"))
        session.set("/a", b"", rig.note("set"))
        session.get("/a", rig.note("get"))
        await pass_time(0.1)
        assert rig.sent(records.Create2Request)[0].data is None
        assert rig.sent(records.SetDataRequest)[0].data == b""
        assert rig.log[-1][1][0] == b""

    @virtually
    async def test_call_within_a_callback_comes_behind_what_has_arrived(self) -> None:
        rig = Rig()
        session = await rig.connected()

        def failing_at_once(event: WatchEvent) -> None:
            rig.watch(event)
            session.create("bad path", b"", rig.note("rejected"))

        session.exists("/a", rig.note("exists"), failing_at_once)
        session.exists("/a", rig.note("exists"), rig.watch)
        session.create("/a", b"", lambda outcome: rig.log.append("create"))
        assert await rig.events_within(0.1) == [
            ("exists", None), ("exists", None), ("created", "/a"), ("created", "/a"), "create",
            ("rejected", BadArgumentsError),
        ]  # fmt: skip


class TestConnections:
    @virtually
    async def test_pings_leave_after_a_third_of_the_session_timeout(self) -> None:
        rig = Rig()
        await rig.connected()
        await pass_time(10 * TIMEOUT_MS / 1000)
        assert len(rig.sent(records.PingRequest)) == 30
        assert rig.take() == []

    @virtually
    async def test_busy_session_sends_no_pings(self) -> None:
        rig = Rig()
        session = await rig.connected()
        for _ in range(60):
            session.exists("/a", rig.note("exists"))
            await pass_time(TIMEOUT_MS / 1000 / 6)
        assert rig.sent(records.PingRequest) == []

    @virtually
    async def test_stall_ends_the_connection_before_the_session_expires(self) -> None:
        rig = Rig()
        session = await rig.connected()
        await pass_time(0.5)
        rig.proxy.break_now(Fault.STALL)
        session.set("/a", b"", rig.note("set"))
        assert await rig.events_within(TIMEOUT_MS / 1000 * 0.55) == []
        await pass_time(TIMEOUT_MS / 1000 * 0.2)
        assert rig.take() == ["suspended", ("set", ConnectionLossError), "resumed"]
        assert session.session_id in rig.server.sessions

    @virtually
    async def test_negotiated_timeout_counts(self) -> None:
        rig = Rig()
        session = await rig.connected(timeout_ms=10)
        assert session.timeout_ms == 400
        await pass_time(4.0)
        assert len(rig.sent(records.PingRequest)) == 30
        assert rig.server.connects[0].timeout_ms == 10

    @virtually
    async def test_next_server_continues_the_session(self) -> None:
        rig = Rig()
        rig.network.listen(rig.proxy.accept, "zk2", PORT)
        rig.network.listen(rig.proxy.accept, "zk3", PORT)
        session = await rig.connected("zk:2181,zk2:2181,zk3:2181")
        for dead in (HOST, "zk2"):
            rig.network.refuse(dead, PORT)
        for name in (HOST, "zk2", "zk3"):
            rig.network.reset(name, PORT)
        assert await rig.events_within(1.0) == ["suspended", "resumed"]
        assert session.session_id in rig.server.sessions

    @virtually
    async def test_server_behind_the_client_is_left_for_another(self) -> None:
        """It closes the connection, as the last zxid is unknown there; the session does not go back in time."""
        rig = Rig()
        old = FakeZooKeeper(rig.clock)
        rig.network.listen(old.accept, "old", PORT)
        session = await rig.connected()
        session.create("/a", b"", rig.note("create"))
        await pass_time(0.1)
        await_old = rig.connect("old:2181", key=SessionKey(1, bytes(16)))
        await_old.core.last_zxid = 100
        await pass_time(5.0)
        assert await_old.suspended and len(old.connects) >= 3
        assert {each.last_zxid for each in old.connects} == {100}

    @virtually
    async def test_session_is_lost_at_a_server_whose_data_is_lost(self) -> None:
        """It closes connections because of the last zxid; asked without it, it does not know the session."""
        rig = Rig()
        session = await rig.connected()
        session.create("/a", b"", rig.note("create"))
        assert await rig.events_within(0.1) == [("create", CreatedNode("/a", ANY))]
        wiped = FakeZooKeeper(rig.clock)
        rig.network.reset(HOST, PORT)
        rig.network.servers[HOST, PORT].close()
        rig.network.listen(wiped.accept, HOST, PORT)
        assert await rig.events_within(0.9 * TIMEOUT_MS / 1000) == ["suspended"]
        seen = rig.server.tree.zxid
        assert {each.last_zxid for each in wiped.connects} == {seen}, "the server may be late"
        assert await rig.events_within(5.0) == ["lost"]
        assert wiped.connects[-1].last_zxid == 0 and session.lost

    @virtually
    async def test_session_does_not_go_back_in_time_at_a_late_server(self) -> None:
        rig = Rig()
        rig.server.expiring = False
        session = await rig.connected()
        session.create("/a", b"", rig.note("create"))
        await pass_time(0.1)
        late = FakeZooKeeper(rig.clock)
        late.sessions, late.expiring = rig.server.sessions, False  # those of one ensemble
        rig.network.reset(HOST, PORT)
        rig.network.servers[HOST, PORT].close()
        rig.network.listen(late.accept, HOST, PORT)
        rig.take()
        assert await rig.events_within(30.0) == ["suspended"]
        seen = rig.server.tree.zxid
        asked = [each.last_zxid for each in late.connects]
        assert set(asked) == {0, seen} and all(a or b for a, b in pairwise(asked)), "every second attempt asks only"
        late.tree = rig.server.tree
        assert await rig.events_within(5.0) == ["resumed"]
        assert late.connects[-1].last_zxid == seen and not session.lost

    @pytest.mark.parametrize("stage", [(RESPONSE, CONNECT), (RESPONSE, "ExistsRequest"), (RESPONSE, EVENT)])
    @pytest.mark.parametrize(
        "garbage",
        [SIZE.pack(-1), SIZE.pack(FRAME_BYTES_MAX + 1), SIZE.pack(3) + b"abc", SIZE.pack(20) + bytes(20), b"HTTP/1.1"],
    )
    @virtually
    async def test_garbage_ends_the_connection_only(self, stage: Stage, garbage: bytes) -> None:
        rig = Rig()
        rig.proxy.edits[stage] = lambda frame: garbage
        session = rig.connect()
        session.exists("/a", rig.note("exists"), rig.watch)
        await pass_time(5.0)
        session.create("/a", b"", rig.note("create"))
        await pass_time(10.0)
        log = rig.take()
        assert log[:1] == [("connected", "session")] and ("exists", None) in log and ("created", "/a") in log
        assert not session.suspended and "lost" not in log

    @virtually
    async def test_response_to_another_request_ends_the_connection(self) -> None:
        rig = Rig()
        session = await rig.connected()
        rig.proxy.edits[RESPONSE, "ExistsRequest"] = lambda frame: SIZE.pack(len(frame)) + b"\x7f" + frame[1:]
        session.exists("/a", rig.note("exists"))
        assert await rig.events_within(RECONNECT_S) == ["suspended", "resumed", ("exists", None)]

    @virtually
    async def test_log_names_server_and_reason_and_is_limited(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig()
        rig.proxy.refusing = True
        with caplog.at_level(logging.INFO, "kafkalite.coordination"):
            rig.connect()
            await pass_time(100.0)
            rig.proxy.refusing = False
            await pass_time(2.0)
        lines = [each.getMessage() for each in caplog.records]
        assert len(lines) == 5 and all(line.startswith("ZooKeeper zk:2181: ") for line in lines)
        assert "the server has closed the connection" in lines[0]


class TestLoss:
    @virtually
    async def test_reset_fails_changes_in_order_and_repeats_reads(self) -> None:
        rig = Rig()
        session = await rig.connected()
        session.create("/a", b"", rig.note("first"))
        session.exists("/a", rig.note("read"))
        session.create("/b", b"", rig.note("second"))
        rig.network.reset(HOST, PORT)
        await pass_time(0.001)
        session.create("/c", b"", rig.note("third"))
        session.exists("/c", rig.note("later read"))
        names = ["suspended", *((name, ConnectionLossError) for name in ("first", "second", "third"))]
        assert rig.take() == names and session.suspended
        assert await rig.events_within(RECONNECT_S) == ["resumed", ("read", None), ("later read", None)]
        assert not session.suspended

    @virtually
    async def test_session_can_be_closed_in_each_state(self) -> None:
        rig = Rig()
        never = rig.connect("nowhere:2181")
        never.exists("/a", rig.note("read"))
        never.close(rig.note("close"))
        assert rig.take() == [
            ("read", SessionExpiredError), ("close", ConnectionLossError), ("connected", SessionExpiredError),
        ]  # fmt: skip
        session = await rig.connected()
        session.create("/a", b"", lambda outcome: rig.log.append("create"), ephemeral=True)
        session.close(rig.note("close"))
        assert session.lost
        session.exists("/a", rig.note("late"))
        assert await rig.events_within(0.1) == [("late", SessionExpiredError), "create", ("close", None)]
        session.close(rig.note("again"))
        assert rig.take() == [("again", None)]
        assert await rig.events_within(100.0) == []
        assert rig.server.sessions == {} and rig.server.tree.find("/a") is None

    @pytest.mark.parametrize("fault", Fault)
    @virtually
    async def test_lost_response_to_close_is_an_error(self, fault: Fault) -> None:
        rig = Rig()
        session = await rig.connected()
        rig.proxy.break_at(RESPONSE, "CloseRequest", fault)
        session.close(rig.note("close"))
        await pass_time(TIMEOUT_MS / 1000)
        assert rig.take() == [("close", ConnectionLossError)]
        assert len(rig.server.connects) == 1

    @virtually
    async def test_key_of_a_session_that_is_over_is_reported(self) -> None:
        rig = Rig()
        rig.connect(key=SessionKey(77, bytes(16)))
        assert await rig.events_within(1.0) == [("connected", SessionExpiredError)]

    @virtually
    async def test_wrong_password_does_not_continue_a_session(self) -> None:
        rig = Rig()
        session = await rig.connected()
        rig.connect(key=session.key._replace(password=bytes(16)))
        assert await rig.events_within(1.0) == [("connected", SessionExpiredError)]
        assert not session.lost and session.key != NEW_SESSION


class TestIdentity:
    @virtually
    async def test_credentials_precede_everything_on_each_connection(self) -> None:
        rig = Rig()
        session = await rig.connected(access=Access(digest=b"kafka:secret", acl=kafka_acl))
        session.create("/config/users/a", b"", rig.note("create"))
        session.exists("/a", rig.note("exists"), rig.watch)
        await pass_time(0.1)
        rig.proxy.break_now(Fault.FIN)
        await pass_time(RECONNECT_S)
        names = [name for direction, name in rig.proxy.passed if direction == REQUEST]
        assert names == [
            CONNECT, "AuthRequest", "SyncRequest", "Create2Request", "ExistsRequest",
            CONNECT, "AuthRequest", "SetWatchesRequest", "SyncRequest",
        ]  # fmt: skip
        assert rig.sent(records.Create2Request)[0].acl == records.CREATOR_ACL
        assert {(each.scheme, each.auth) for each in rig.sent(records.AuthRequest)} == {("digest", b"kafka:secret")}

    @pytest.mark.parametrize("accepted", [False, True])
    @virtually
    async def test_tls_that_all_servers_reject_ends_the_session_unless_one_has_accepted_it_since(
        self, accepted: bool
    ) -> None:
        """Two servers by turns. The third connection is accepted, and closed in the handshake: a server that starts."""
        rejection = ssl.SSLError(1, "")
        rejection.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        results = [rejection, ConnectionRefusedError(), None if accepted else rejection, rejection, None]
        attempts: list[str] = []
        rig = Rig()

        async def dial(protocol: Any, host: str, *_rest: Any) -> None:
            attempts.append(host)
            if (error := results[len(attempts) - 1]) is not None:
                raise error
            await rig.network.dial(protocol, HOST, PORT, None)

        if accepted:
            rig.proxy.break_at(REQUEST, CONNECT, Fault.FIN)
        rig.connect("a:2181,b:2181", dial=dial)
        await pass_time(10.0)
        assert rig.take() == [("connected", "session" if accepted else TlsError)]
        assert len(attempts) == (5 if accepted else 4) and attempts[:2] == attempts[2:4]

    @virtually
    async def test_rejected_credentials_end_the_session(self) -> None:
        rig = Rig()
        rig.server.passwords = {b"kafka:other"}
        session = rig.connect(access=Access(digest=b"kafka:secret"))
        session.exists("/a", rig.note("exists"))
        await pass_time(10.0)
        assert rig.take() == [("connected", AuthenticationError), ("exists", AuthenticationError)]
        assert session.lost and len(rig.server.connects) == 1

    @pytest.mark.parametrize("chroot", ["", "/kafka", "/kafka/one", "/kafka/one/two"])
    @virtually
    async def test_only_what_is_missing_of_a_chroot_is_created(self, chroot: str) -> None:
        """ZooKeeper refuses a create below a closed node, also of a node that exists."""
        rig = Rig()
        rig.server.tree.multi([Create("/kafka")], rig.server.tree.open_session(), 0)
        session = await rig.connected(f"zk:2181{chroot}")
        for _ in range(2):
            session.create_chroot(rig.note("chroot"))
            assert await rig.events_within(0.1) == [("chroot", None)]
        missing = [path for path in ("/kafka/one", "/kafka/one/two") if chroot.startswith(path)]
        assert [each.path for each in rig.sent(records.Create2Request)] == missing

    @virtually
    async def test_a_chroot_that_two_sessions_create_at_once_exists_for_both(self) -> None:
        rig = Rig()
        sessions = [await rig.connected("zk:2181/kafka") for _ in range(2)]
        for session in sessions:
            session.create_chroot(rig.note("chroot"))
        assert await rig.events_within(0.1) == [("chroot", None)] * 2
        assert [each.path for each in rig.sent(records.Create2Request)] == ["/kafka"] * 2

    @virtually
    async def test_paths_of_results_events_and_errors_are_below_the_chroot(self) -> None:
        rig = Rig()
        session = await rig.connected("zk:2181/kafka/one")
        session.create_chroot(rig.note("chroot"))
        assert await rig.events_within(0.1) == [("chroot", None)]
        session.children("/", rig.note("children"), rig.watch)
        session.exists("/q", rig.note("exists"), rig.watch)
        paths: list[str] = []
        session.create("/q", b"", lambda outcome: paths.append(outcome.value.path))
        session.create("/q/n", b"", lambda outcome: paths.append(outcome.value.path), sequence=True)
        session.delete("/missing", lambda outcome: paths.append(outcome.error.path))  # type: ignore[union-attr]
        await pass_time(0.1)
        log = [each for each in rig.take() if each[0] != "children" or each[1] == "/"]
        assert log == [("exists", None), ("created", "/q"), ("children", "/")]
        assert paths == ["/q", "/q/n0000000000", "/missing"]
        assert rig.server.tree.find("/kafka/one/q/n0000000000") is not None
        rig.proxy.break_now(Fault.FIN)
        session.get("/q", rig.note("get"), rig.watch)
        await pass_time(RECONNECT_S)
        rig.server.tree.multi([Set("/kafka/one/q", b"1")], session.session_id, 0)
        rig.server.fire()
        await pass_time(0.1)
        assert rig.log[-1] == ("changed", "/q")


@virtually
async def test_new_session_that_expires_before_it_is_established_is_replaced_by_another() -> None:
    rig = Rig()
    session = rig.connect()
    while session.session_id == 0:  # until the response with the id
        await pass_time(0.00005)
    assert rig.take() == []
    rig.server.expire(session.session_id)
    await pass_time(3.0)
    assert rig.take() == [("connected", "session")]
    assert list(rig.server.sessions) == [session.session_id]
