"""The server of the served tree: sessions that outlive it, expiry, and what a full disk and a client may do to it."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafkalite.coordination.served import connection, requests, server
from kafkalite.coordination.tree import WatchEvent
from kafkalite.coordination.zookeeper import protocol, records
from tests.kit.costly_clock import CostlyClock
from tests.unit.coordination.kit import FaultyDisk
from tests.unit.coordination.served.rig import NEW, Bench, RawClient, RawTransport

EPHEMERAL = records.EPHEMERAL


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path, FaultyDisk())
    yield bench
    bench.close()


class TestSessions:
    def test_session_continues_with_its_password_after_the_death_of_the_server(self, bench: Bench) -> None:
        client = bench.client(timeout_ms=4000)
        assert client.create("/mine", EPHEMERAL) == 0
        for _ in range(20):
            bench.restart()
            again = bench.client(key=client.key)
            assert again.key == client.key and again.timeout_ms == 4000
            assert again.exists("/mine")

    def test_session_has_its_full_timeout_after_the_death_of_the_server_and_no_more(self, bench: Bench) -> None:
        client, other = bench.client(timeout_ms=4000), bench.client(timeout_ms=60_000)
        client.create("/mine", EPHEMERAL)
        bench.clock.advance(3900)
        bench.restart()
        other = bench.client(key=other.key)
        bench.clock.advance(3999)
        assert other.exists("/mine")
        bench.clock.advance(1)
        assert not other.exists("/mine")
        bench.restart()
        assert bench.client(key=client.key).key == NEW, "it has expired"

    @pytest.mark.parametrize("password", [bytes(16), b"", b"x" * 100])
    def test_wrong_password_is_refused(self, bench: Bench, password: bytes) -> None:
        client = bench.client()
        wrong = bench.client(key=(client.key[0], password))
        assert wrong.timeout_ms == 0 and wrong.transport.closed and not client.transport.closed

    def test_second_connection_of_a_session_closes_the_first(self, bench: Bench) -> None:
        first, other = bench.client(), bench.client()
        first.create("/a")
        first.call(records.GetDataRequest("/a", True))
        second = bench.client(key=first.key)
        assert first.transport.closed and second.key == first.key
        first.disconnect()
        other.call(records.SetDataRequest("/a", b"1", -1))
        assert second.responses() == [] and second.events == [], "the watch ended with the connection"
        assert second.exists("/a")

    def test_client_of_another_tree_is_not_served(self, bench: Bench) -> None:
        client = bench.client(last_zxid=1000)
        assert client.key == NEW and client.transport.closed

    @pytest.mark.parametrize(("asked", "granted"), [(1, 400), (2000, 2000), (2**31 - 1, 600_000)])
    def test_timeout_has_limits(self, bench: Bench, asked: int, granted: int) -> None:
        assert bench.client(timeout_ms=asked).timeout_ms == granted

    def test_closed_session_is_over(self, bench: Bench) -> None:
        client, other = bench.client(), bench.client()
        client.create("/mine", EPHEMERAL)
        assert client.call(records.CloseRequest()) == (0, records.EmptyResponse())
        assert client.transport.closed and not other.exists("/mine")
        assert bench.client(key=client.key).timeout_ms == 0

    def test_sessions_and_connections_are_limited(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(server, "SESSIONS_MAX", 2)
        monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
        monkeypatch.setattr(server, "CONTINUING_MIN", 0)
        clients = [bench.client(), bench.client()]
        refused = bench.client()
        assert refused.key == NEW and refused.transport.closed
        refused.disconnect()
        silent = RawClient(bench)
        assert RawClient(bench).transport.closed is False and silent.transport.closed, "it makes space"
        assert not any(client.transport.closed for client in clients)

    def test_session_without_connection_and_nodes_makes_space_for_a_new_one(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "SESSIONS_MAX", 2)
        owner, unused = bench.client(), bench.client()
        owner.create("/mine", EPHEMERAL)
        owner.disconnect()
        unused.disconnect()
        assert bench.client().key != NEW
        assert bench.client(key=unused.key).timeout_ms == 0, "it has ended"
        assert bench.client(key=owner.key).key == owner.key

    def test_connections_are_kept_for_sessions_that_continue(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "CONNECTIONS_MAX", 3)
        monkeypatch.setattr(server, "CONTINUING_MIN", 1)
        first = bench.client()
        first.disconnect()
        others = [bench.client(), bench.client()]
        refused = bench.client()
        assert refused.key == NEW, "the last connection is for a session that exists"
        refused.disconnect()
        assert bench.client(key=first.key).key == first.key
        assert not any(each.transport.closed for each in others)

    def test_descriptors_of_logs_are_not_used(self, bench: Bench) -> None:
        bench.server._refuse_from = 100
        for descriptor, refused in ((99, False), (100, True)):
            transport = RawTransport(descriptor)
            bench.server.accept().connection_made(transport)
            assert transport.closed is refused


class TestExpiry:
    def test_every_frame_extends_a_session(self, bench: Bench) -> None:
        client, other = bench.client(timeout_ms=1000), bench.client(timeout_ms=60_000)
        client.create("/mine", EPHEMERAL)
        for _ in range(5):
            bench.clock.advance(900)
            client.request(records.PingRequest())
        assert other.exists("/mine") and not client.transport.closed
        bench.clock.advance(1000)
        assert not other.exists("/mine") and client.transport.closed

    def test_stopped_server_expires_nothing_at_once(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        """SIGSTOP, then SIGCONT: the pings of the clients are in the sockets, but timers run first."""
        client, other = bench.client(timeout_ms=1000), bench.client(timeout_ms=60_000)
        client.create("/mine", EPHEMERAL)
        clock = bench.clock
        stopped_until = clock.monotonic() + 30
        monkeypatch.setattr(clock, "monotonic", lambda: max(stopped_until, clock._now_ms / 1000))
        clock.advance(1500)
        assert other.exists("/mine")
        clock.advance(30_000)
        assert not other.exists("/mine")


class TestFullDisk:
    def test_refused_change_leaves_the_session_and_later_ones_work(self, bench: Bench) -> None:
        client = bench.client()
        bench.disk.faults.write_room = 0  # type: ignore[attr-defined]
        assert client.create("/a") == -4
        assert client.call(records.MultiRequest((records.Create2Request("/b", b"", records.OPEN_ACL, 0),)))[0] == -4
        assert not client.exists("/a")
        assert bench.client().transport.closed, "no new session"
        bench.disk.faults.write_room = None  # type: ignore[attr-defined]
        assert client.create("/a") == 0 and bench.client().key != NEW

    def test_expiry_is_tried_again(self, bench: Bench) -> None:
        client, other = bench.client(timeout_ms=1000), bench.client(timeout_ms=60_000)
        client.create("/mine", EPHEMERAL)
        bench.disk.faults.write_room = 0  # type: ignore[attr-defined]
        bench.clock.advance(1000)
        bench.offload.drain()
        assert other.exists("/mine")
        bench.clock.advance(5000)
        bench.offload.drain()
        assert other.exists("/mine")
        bench.disk.faults.write_room = None  # type: ignore[attr-defined]
        bench.clock.advance(1000)
        bench.offload.drain()
        assert not other.exists("/mine")


class TestOrder:
    def test_nothing_is_answered_before_it_is_durable_but_pings(self, bench: Bench) -> None:
        client = bench.client()
        bench.offload.held = True
        client.request(
            records.Create2Request("/a", b"1", records.OPEN_ACL, 0),
            records.GetDataRequest("/a", False),
            records.PingRequest(),
        )
        bench.offload.drain()
        assert client.responses() == [(0, records.EmptyResponse())]
        bench.offload.release()
        bench.offload.drain()
        created, read = client.responses()
        assert created[1].path == "/a" and read[1].data == b"1"

    def test_event_of_a_change_comes_before_the_response_that_shows_it(self, bench: Bench) -> None:
        client = bench.client()
        client.create("/a")
        client.call(records.GetDataRequest("/a", True))
        client.request(records.SetDataRequest("/a", b"1", -1))
        bench.offload.drain()
        first = protocol.decode_header(bytes(client.transport.written[4:]))
        assert first.xid == protocol.EVENT_XID
        client.responses()
        assert client.events == [WatchEvent("changed", "/a")]


class TestRequests:
    @pytest.mark.parametrize("acl", [records.CREATOR_ACL, (), (records.Acl(1, records.Id("world", "anyone")),)])
    def test_access_control_that_would_not_be_enforced_is_refused(self, bench: Bench, acl: tuple[records.Acl]) -> None:
        client = bench.client()
        assert client.create("/a", acl=acl) == -114
        client.create("/a")
        assert client.call(records.SetAclRequest("/a", acl, -1))[0] == -114
        assert client.call(records.GetAclRequest("/a"))[1].acl == records.OPEN_ACL

    def test_credentials_are_refused(self, bench: Bench) -> None:
        client = bench.client()
        assert client.call(records.AuthRequest(0, "digest", b"a:b"))[0] == -115
        assert client.transport.closed

    def test_unknown_requests_and_node_types_are_refused(self, bench: Bench) -> None:
        client = bench.client()
        assert client.create("/a", flags=4) == -6
        assert client.call(records.CheckWatchesRequest("/a", 1))[0] == -6
        frame = protocol.encode_request(9, records.SyncRequest("/"))
        client.send(frame[:8] + (999).to_bytes(4, "big") + frame[12:])
        assert client.responses() == [(-6, None)]
        assert client.create("/a") == 0

    def test_failed_multi_names_its_operation(self, bench: Bench) -> None:
        client = bench.client()
        good = records.Create2Request("/a", b"", records.OPEN_ACL, 0)
        for bad, code in ((good._replace(acl=()), -114), (records.CheckVersionRequest("/none", 0), -101)):
            error, response = client.call(records.MultiRequest((good, bad, good)))
            assert error == 0 and [each.response.error for each in response.results] == [0, code, -2]
        assert not client.exists("/a")

    def test_create_without_stat(self, bench: Bench) -> None:
        request = records.CreateRequest("/n-", None, records.OPEN_ACL, records.SEQUENCE)
        assert bench.client().call(request) == (0, records.CreateResponse("/n-0000000000"))


class TestLimits:
    def test_requests_wait_while_too_many_responses_are_open(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection, "OPEN_RESPONSES_MAX", 10)
        client = bench.client()
        bench.offload.held = True
        create = records.Create2Request("/n", b"", records.OPEN_ACL, records.SEQUENCE)
        client.request(*[create] * 35)
        assert len(bench.tree.tree.root.children) == 10 and client.transport.reading_paused
        bench.offload.release()
        bench.offload.drain()
        paths = [response.path for _, response in client.responses()]
        assert paths == [f"/n{number:010d}" for number in range(35)] and not client.transport.reading_paused

    def test_requests_wait_while_responses_are_unsent(self, bench: Bench) -> None:
        client = bench.client()
        client.connection.pause_writing()
        client.request(records.SyncRequest("/"), records.SyncRequest("/"))
        assert client.responses() == [] and client.transport.reading_paused
        client.connection.resume_writing()
        assert len(client.responses()) == 2 and not client.transport.reading_paused

    def test_client_that_reads_no_events_is_disconnected(self, bench: Bench) -> None:
        client, other = bench.client(), bench.client()
        client.create("/a")
        client.call(records.GetDataRequest("/a", True))
        client.connection.pause_writing()
        client.transport.buffered = connection.UNSENT_BYTES_MAX + 1
        other.call(records.SetDataRequest("/a", b"", -1))
        assert client.transport.closed

    def test_watches_are_limited(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "WATCHES_MAX", 2)
        client = bench.client()
        codes = [client.call(records.ExistsRequest(f"/{number}", True))[0] for number in range(3)]
        assert codes == [-101, -101, -8]
        again = records.SetWatchesRequest(0, (), ("/x", "/y", "/z"), ())
        assert bench.client().call(again)[0] == -8

    def test_watches_of_all_sessions_are_limited(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "ALL_WATCHES_MAX", 2)
        clients = [bench.client() for _ in range(3)]
        assert [each.call(records.ExistsRequest("/a", True))[0] for each in clients] == [-101, -101, -8]
        clients[0].disconnect()
        assert clients[2].call(records.ExistsRequest("/a", True))[0] == -101

    def test_tree_at_its_limit_takes_deletions_alone(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        client = bench.client()
        assert client.create("/a") == 0
        monkeypatch.setattr(requests, "TREE_BYTES_MAX", 1)
        assert client.create("/b") == -8
        assert client.call(records.SetDataRequest("/a", b"1", -1))[0] == -8
        assert client.call(records.DeleteRequest("/a", -1))[0] == 0
        assert client.create("/b") == 0

    def test_operations_of_a_multi_are_limited(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(requests, "OPERATIONS_MAX", 2)
        client = bench.client()
        check = records.CheckVersionRequest("/", -1)
        assert client.call(records.MultiRequest((check, check)))[0] == 0
        error, response = client.call(records.MultiRequest((check, check, check)))
        assert error == 0 and [each.response.error for each in response.results] == [-8, -2, -2]

    def test_requests_wait_while_open_responses_of_all_clients_are_too_large(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server, "OPEN_BYTES_MAX", 1000)
        greedy, other = bench.client(), bench.client()
        greedy.call(records.Create2Request("/a", bytes(600), records.OPEN_ACL, 0))
        bench.offload.held = True
        greedy.request(records.SetDataRequest("/a", bytes(600), -1), *[records.GetDataRequest("/a", False)] * 5)
        other.request(records.GetDataRequest("/a", False))
        assert bench.server.open_bytes == 1200 and greedy.transport.reading_paused and other.transport.reading_paused
        bench.offload.release()
        bench.offload.drain()
        assert len(greedy.responses()) == 6 and len(other.responses()) == 1
        assert bench.server.open_bytes == 0 and not other.transport.reading_paused

    def test_responses_of_a_lost_connection_are_not_encoded(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client = bench.client()
        client.create("/a")
        bench.offload.held = True
        client.request(records.SetDataRequest("/a", b"1", -1), *[records.GetDataRequest("/a", False)] * 3)
        client.disconnect()
        monkeypatch.setattr(protocol, "encode_response", lambda *_: 1 // 0)
        bench.offload.release()
        bench.offload.drain()
        assert bench.server.open_bytes == 0

    def test_long_queue_of_one_client_does_not_delay_another(self, bench: Bench) -> None:
        """Each look at the clock costs a millisecond: after the budget of a loop iteration the clients take turns."""
        greedy, other = bench.client(), bench.client()
        bench.server.slicer._clock = CostlyClock(bench.clock)
        greedy.request(*[records.GetDataRequest("/", False)] * 1000)
        assert 0 < len(greedy.responses()) < 10
        other.request(records.GetDataRequest("/", False))
        bench.clock.advance(10)
        assert len(other.responses()) == 1 and len(greedy.responses()) < 20

    def test_responses_behind_one_flush_leave_in_several_iterations(self, bench: Bench) -> None:
        client = bench.client()
        bench.offload.held = True
        change = records.SetDataRequest("/", b"", -1)
        client.request(change, *[records.GetDataRequest("/", False)] * 100)
        bench.tree._clock = CostlyClock(bench.clock)
        bench.offload.release()
        bench.offload.drain()
        first = len(client.responses())
        assert 0 < first < 10
        bench.clock.advance(5000)
        assert first + len(client.responses()) == 101

    def test_silent_connection_is_closed(self, bench: Bench) -> None:
        client = RawClient(bench)
        bench.clock.advance(connection.FIRST_FRAME_S * 1000)
        assert client.transport.closed

    def test_garbage_ends_its_connection_only(self, bench: Bench, chance: random.Random) -> None:
        client = bench.client(timeout_ms=600_000)
        client.create("/a")
        for _ in range(500):
            bad = bench.client() if chance.random() < 0.5 else RawClient(bench)
            frame = bytearray(bad.encoded(records.MultiRequest((records.CheckVersionRequest("/a", 0),))))
            for _ in range(chance.randint(1, 8)):
                frame[chance.randrange(len(frame))] = chance.randrange(256)
            bad.send(bytes(frame[: chance.randint(1, len(frame))]))
            bad.send(chance.randbytes(chance.randint(0, 64)))
            bad.disconnect()
            bench.offload.drain()
        assert client.exists("/a")
