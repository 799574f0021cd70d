"""The defects of aiozk 0.32, each as a test of our session: against a fake server and a proxy, in virtual time."""

import asyncio
import itertools
import ssl

import pytest

from kafkalite.coordination.errors import BadVersionError, ConnectionLossError, SessionExpiredError
from kafkalite.coordination.tree import Check, Create, Delete, Set
from kafkalite.coordination.zookeeper import protocol, records
from kafkalite.coordination.zookeeper.codec import SIZE
from kafkalite.testing.virtual_loop import pass_time
from tests.kit.zookeeper_proxy import CONNECT, REQUEST, RESPONSE, Fault
from tests.unit.coordination.zookeeper.rig import TIMEOUT_MS, Rig, virtually

BREAKS = (Fault.FIN, Fault.RST)
AT_ONCE_S = 0.001  # bytes need 0.0001 s per hop
RECONNECT_S = 0.25  # the first pause is 0.2 s at most


@pytest.mark.parametrize("fault", BREAKS)
@virtually
async def test_end_of_an_idle_connection_is_noticed_at_once(fault: Fault) -> None:
    rig = Rig()
    session = await rig.connected()
    await pass_time(1.0)
    rig.proxy.break_now(fault)
    assert await rig.events_within(AT_ONCE_S) == ["suspended"]
    assert await rig.events_within(RECONNECT_S) == ["resumed"]
    assert session.session_id in rig.server.sessions


@pytest.mark.parametrize("fault", BREAKS)
@virtually
async def test_call_in_flight_fails_at_once(fault: Fault) -> None:
    rig = Rig()
    session = await rig.connected()
    rig.proxy.break_at(REQUEST, "Create2Request", fault)
    session.create("/a", b"", rig.note("create"))
    assert await rig.events_within(AT_ONCE_S) == ["suspended", ("create", ConnectionLossError)]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("direction", [REQUEST, RESPONSE])
@virtually
async def test_break_while_watches_are_set_again_does_not_hang(direction: str, fault: Fault) -> None:
    rig = Rig()
    session = await rig.connected()
    session.exists("/a", rig.note("exists"), rig.watch)
    await pass_time(0.1)
    rig.proxy.break_at(direction, "SetWatchesRequest", fault)
    rig.proxy.break_now(Fault.FIN)
    session.exists("/a", rig.note("waits"))
    await pass_time(TIMEOUT_MS / 1000)
    assert rig.take() == [("exists", None), "suspended", "resumed", ("waits", None)]
    rig.server.tree.multi([Create("/a")], session.session_id, 0)
    rig.server.fire()
    assert await rig.events_within(0.1) == [("created", "/a")]


@pytest.mark.parametrize("while_suspended", [False, True])
@virtually
async def test_watch_for_a_deletion_is_set_again(while_suspended: bool) -> None:
    rig = Rig()
    session = await rig.connected()
    session.create("/leader", b"", rig.note("create"))
    session.exists("/leader", rig.note("exists"), rig.watch)
    await pass_time(0.1)
    rig.take()
    rig.proxy.break_now(Fault.FIN)
    if not while_suspended:
        assert await rig.events_within(RECONNECT_S) == ["suspended", "resumed"]
    rig.server.tree.multi([Delete("/leader")], session.session_id, 0)
    rig.server.fire()
    expected = ["suspended", ("deleted", "/leader"), "resumed"] if while_suspended else [("deleted", "/leader")]
    assert await rig.events_within(RECONNECT_S) == expected
    assert rig.sent(records.SetWatchesRequest)[0].data == ("/leader",)


@virtually
async def test_another_session_id_is_a_lost_session() -> None:
    """The server answers the reconnect with a new session, as ZooKeeper's clients before 3.5 let it happen."""
    rig = Rig()
    session = await rig.connected()
    other = records.ConnectResponse(0, TIMEOUT_MS, session.session_id + 1, bytes(16), False)
    rig.proxy.edits[RESPONSE, CONNECT] = lambda frame: protocol.encode_connected(other)
    rig.proxy.break_now(Fault.FIN)
    session.exists("/a", rig.note("waits"))
    assert await rig.events_within(RECONNECT_S) == ["suspended", "lost", ("waits", SessionExpiredError)]
    assert session.lost and not session.suspended
    assert await rig.events_within(60.0) == []
    assert len(rig.server.connects) == 2, "a lost session does not connect again"


@virtually
async def test_slow_response_to_the_reconnect_is_a_lost_session() -> None:
    rig = Rig()
    session = await rig.connected()
    rig.server.expire(session.session_id)
    rig.network.stall("zk", 2181, TIMEOUT_MS / 1000 + 1)
    await pass_time(4 * TIMEOUT_MS / 1000)
    assert rig.take() == ["suspended", "lost"]


@virtually
async def test_lost_leader_sees_that_the_session_is_lost() -> None:
    rig = Rig()
    session = await rig.connected()
    session.create("/controller", b"", rig.note("create"), ephemeral=True)
    await pass_time(0.1)
    rig.server.expire(session.session_id)
    await pass_time(RECONNECT_S)
    session.set("/controller", b"", rig.note("set"))
    session.exists("/controller", rig.note("exists"))
    names = rig.take()
    assert names[1:] == ["suspended", "lost", ("set", SessionExpiredError), ("exists", SessionExpiredError)]
    assert rig.server.tree.find("/controller") is None


@virtually
async def test_reconnect_carries_the_last_zxid_and_fires_only_changed_watches() -> None:
    rig = Rig()
    session = await rig.connected()
    for path in ("/same", "/changed", "/list", "/other"):
        session.create(path, b"", rig.note("create"))
    for path in ("/same", "/changed"):
        session.get(path, rig.note("get"), rig.watch)
    for path in ("/list", "/other"):
        session.children(path, rig.note("children"), rig.watch)
    session.exists("/absent", rig.note("exists"), rig.watch)
    session.exists("/appears", rig.note("exists"), rig.watch)
    await pass_time(0.1)
    rig.take()
    seen = rig.server.tree.zxid
    rig.proxy.break_now(Fault.RST)
    changes = [Set("/changed", b"1"), Create("/list/x"), Create("/appears")]
    rig.server.tree.multi(changes, session.session_id, 0)
    rig.server.tree.take_fired()
    events = await rig.events_within(RECONNECT_S)
    assert events == ["suspended", ("changed", "/changed"), ("created", "/appears"), ("children", "/list"), "resumed"]
    assert rig.server.connects[1].last_zxid == seen
    assert rig.sent(records.SetWatchesRequest)[0].zxid == seen


@virtually
async def test_failed_multi_raises_the_error_of_its_operation() -> None:
    rig = Rig()
    session = await rig.connected()
    failures = []
    session.multi((Create("/a"), Set("/a", b"1"), Check("/a", 7), Create("/b")), failures.append)
    await pass_time(0.1)
    with pytest.raises(BadVersionError) as caught:
        failures[0].result()
    assert (caught.value.at, caught.value.path) == (2, "/a")
    assert rig.server.tree.find("/a") is None


@virtually
async def test_back_off_is_between_a_tenth_of_a_second_and_one_second() -> None:
    rig = Rig(seed=3)
    await rig.connected()
    rig.proxy.refusing = True
    rig.proxy.break_now(Fault.FIN)
    attempts: list[float] = []

    async def dial(*arguments: object) -> None:
        attempts.append(rig.clock.monotonic())
        raise ConnectionRefusedError

    session = rig.connect(dial=dial)
    await pass_time(120.0)
    pauses = [after - before for before, after in itertools.pairwise(attempts)]
    assert min(pauses) >= 0.1 and max(pauses) <= 1.0
    assert pauses[0] <= 0.2 and len(set(pauses[5:])) > len(pauses) / 4, "the pause grows and has a random part"
    session.close(rig.note("close"))
    assert rig.take() == ["suspended", ("close", ConnectionLossError), ("connected", SessionExpiredError)]
    rig.proxy.refusing = False
    assert await rig.events_within(1.0 + RECONNECT_S) == ["lost"], "the server has expired it"


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("name", ["Create2Request", "SetDataRequest", "DeleteRequest", "MultiRequest"])
@virtually
async def test_changes_are_not_repeated(name: str, fault: Fault) -> None:
    rig = Rig()
    session = await rig.connected()
    session.create("/a", b"", rig.note("create"))
    await pass_time(0.1)
    rig.take()
    before = len(rig.server.requests)
    rig.proxy.break_at(RESPONSE, name, fault)
    {
        "Create2Request": lambda: session.create("/a/n", b"", rig.note("call"), sequence=True),
        "SetDataRequest": lambda: session.set("/a", b"1", rig.note("call")),
        "DeleteRequest": lambda: session.delete("/a", rig.note("call")),
        "MultiRequest": lambda: session.multi([Set("/a", b"1")], rig.note("call")),
    }[name]()
    session.exists("/a", rig.note("read"))
    await pass_time(TIMEOUT_MS / 1000)
    log = rig.take()
    assert log[:3] == ["suspended", ("call", ConnectionLossError), "resumed"] and log[3][0] == "read"
    sent = [type(each).__name__ for each in rig.server.requests[before:]]
    assert sent.count(name) == 1


@virtually
async def test_connection_begins_with_the_handshake_and_has_a_time_limit() -> None:
    """aiozk asks every server for `srvr` first, on a connection without a time limit."""
    rig = Rig()
    rig.proxy.break_at("accept", "", Fault.STALL)
    rig.proxy.break_at(REQUEST, CONNECT, Fault.STALL)
    rig.proxy.break_at(RESPONSE, CONNECT, Fault.STALL)
    session = rig.connect()
    await pass_time(1.0 + 2.0 + 4.0 + 3 * 0.8)
    assert rig.take() == [("connected", "session")]
    assert rig.proxy.passed[:4] == [("accept", ""), ("accept", ""), (REQUEST, CONNECT), ("accept", "")]
    assert not session.suspended


@virtually
async def test_dial_that_hangs_has_a_time_limit() -> None:
    rig = Rig()
    hanging: list[asyncio.Future[object]] = []

    async def dial(factory: object, host: str, port: int, ssl: ssl.SSLContext | None) -> object:
        if hanging:
            return await rig.network.dial(factory, host, port, ssl)  # type: ignore[arg-type]
        hanging.append(asyncio.get_running_loop().create_future())
        return await hanging[0]

    rig.connect(dial=dial)
    assert await rig.events_within(1.0 + RECONNECT_S) == [("connected", "session")]
    assert hanging[0].cancelled()


@virtually
async def test_watches_of_many_paths_leave_nothing_behind() -> None:
    rig = Rig()
    session = await rig.connected()
    for number in range(200):
        session.exists(f"/n{number}", rig.note("exists"), rig.watch)
        session.create(f"/n{number}", b"", rig.note("create"))
        session.get(f"/absent{number}", rig.note("get"), rig.watch)
    await pass_time(0.1)
    assert sum(event[0] == "created" for event in rig.take()) == 200
    assert len(session.core.watches) == 0 and session.core.open_calls == 0


@virtually
async def test_watches_are_set_again_in_requests_below_the_limit_of_the_server() -> None:
    rig = Rig()
    count = 12_000
    session = await rig.connected(in_flight_max=count)
    for number in range(count):
        session.exists(f"/{number:0100d}", rig.note("exists"), rig.watch)
    await pass_time(0.1)
    rig.take()
    rig.proxy.break_now(Fault.FIN)
    assert await rig.events_within(RECONNECT_S) == ["suspended", "resumed"]
    requests = rig.sent(records.SetWatchesRequest)
    sizes = [len(protocol.encode_request(1, each)) - SIZE.size for each in requests]
    assert sum(len(each.exist) for each in requests) == count
    assert len(sizes) > 8 and max(sizes) <= 256 * 1024
    assert len({each.zxid for each in requests}) == 1
