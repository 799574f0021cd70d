"""What a session does when its connection breaks: by FIN, by RST, or without a sign, in every state."""

from collections.abc import Sequence
from typing import Any

import pytest

from kafkalite.coordination.errors import ConnectionLossError, NoNodeError
from kafkalite.coordination.tree import Check, Create, Operation, Set
from tests.contract.coordination.conftest import Client
from tests.contract.coordination.services import NetworkService
from tests.kit.zookeeper_proxy import CONNECT, REQUEST, RESPONSE, Fault, Stage

ACCEPTED: Stage = ("accept", "")
RESTORING: list[Stage] = [
    ACCEPTED, (REQUEST, CONNECT), (RESPONSE, CONNECT), (REQUEST, "SetWatchesRequest"), (RESPONSE, "SetWatchesRequest"),
    (REQUEST, "SyncRequest"), (RESPONSE, "SyncRequest"),
]  # fmt: skip

pytestmark = pytest.mark.timeout(240)


SERVER = "zookeeper-uvloop"
ONE_SERVER = pytest.mark.xdist_group("zookeeper")
BOTH_SIDES: list[Stage] = [(REQUEST, "*"), (RESPONSE, "*")]


def row(network: str, stage: Stage | None, fault: Fault, *, marks: Any = ()) -> Any:
    """A case with a readable name."""
    return pytest.param(
        network,
        stage,
        fault,
        marks=marks,
        id="-".join((network, *(stage or ("idle",)), fault.value)).replace("*", "any"),
    )


def cases(stages: Sequence[Stage | None], stalled: Sequence[Stage | None] = ()) -> pytest.MarkDecorator:
    """Every fault at every stage; on a real server, where a stall takes real time, stalls at some stages only."""
    quick = [(stage, fault) for stage in stages for fault in Fault]
    real = [(stage, fault) for stage, fault in quick if fault is not Fault.STALL or stage in stalled]
    virtual = [row(network, *each) for network in ("fake", "served") for each in quick]
    rows = [
        *virtual,
        *(row("served-uvloop", *each) for each in real),
        *(row(SERVER, *each, marks=ONE_SERVER) for each in real),
    ]
    return pytest.mark.parametrize(("network", "stage", "fault"), rows, indirect=["network"])


@pytest.fixture
def service(network: NetworkService) -> NetworkService:
    """The sessions of these tests have connections."""
    return network


@cases([None, *RESTORING], stalled=[None, (RESPONSE, CONNECT), (RESPONSE, "SetWatchesRequest")])
def test_session_continues_after_a_break(
    service: NetworkService, client: Client, other: Client, stage: Stage | None, fault: Fault
) -> None:
    """Of an idle connection, then at a stage of the next one: exactly the changed watches fire, each once."""
    client.create("/mine", ephemeral=True)
    for path in ("/data", "/list", "/goes", "/same"):
        client.create(path, b"1")
    for path in ("/data", "/goes", "/same"):
        client.get(path, watch=True)
    client.children("/list", watch=True)
    client.children("/", watch=True)
    client.exists("/comes", watch=True)
    client.exists("/never", watch=True)
    session_id = client.session.session_id

    if stage is not None:
        service.proxy.break_at(*stage, fault)
    service.break_session(client.session, Fault.FIN if stage else fault)
    service.wait(lambda: client.states[-1:] == ["suspended"])
    other.set("/data", b"2")
    other.create("/list/x")
    service.wait(lambda: client.states == ["suspended", "resumed"])
    other.delete("/goes")
    other.create("/comes")

    expected = [
        ("changed", "/data"),
        ("children", "/"),
        ("children", "/list"),
        ("created", "/comes"),
        ("deleted", "/goes"),
    ]
    assert sorted(client.take_events()) == expected
    assert client.session.session_id == session_id and client.lost == 0 and not client.session.suspended
    assert other.get("/mine")[1].ephemeral_owner == session_id
    other.set("/same", b"2")
    other.create("/never")
    assert client.take_events() == [("changed", "/same"), ("created", "/never")], "these watches were set again"
    assert client.states == ["suspended", "resumed"]


@cases([ACCEPTED, (REQUEST, CONNECT), (RESPONSE, CONNECT), (RESPONSE, "SyncRequest")], stalled=[ACCEPTED])
def test_first_connection_may_break(service: NetworkService, stage: Stage, fault: Fault) -> None:
    service.proxy.break_at(*stage, fault)
    client = Client(service)
    client.create("/a")
    assert client.states == [] and client.lost == 0


@pytest.mark.parametrize("name", ["Create2Request", "SetDataRequest", "DeleteRequest"])
@cases(BOTH_SIDES)
def test_lost_change_is_reported_and_can_be_read_back(
    service: NetworkService, client: Client, name: str, stage: Stage, fault: Fault
) -> None:
    """The server has executed it, or has not received it; reads after the suspension show which."""
    client.create("/a", b"old")
    client.create("/b")
    service.proxy.break_at(stage[0], name, fault)
    with pytest.raises(ConnectionLossError):
        {
            "Create2Request": lambda: client.create("/new", ephemeral=True),
            "SetDataRequest": lambda: client.set("/a", b"new"),
            "DeleteRequest": lambda: client.delete("/b"),
        }[name]()
    service.wait(lambda: client.states == ["suspended", "resumed"])
    executed = stage[0] == RESPONSE
    assert (client.exists("/new") is not None) == (executed and name == "Create2Request")
    assert client.get("/a")[1].version == (executed and name == "SetDataRequest")
    assert (client.exists("/b") is None) == (executed and name == "DeleteRequest")


@cases(BOTH_SIDES)
def test_lost_sequential_create_leaves_at_most_one_node(
    service: NetworkService, client: Client, stage: Stage, fault: Fault
) -> None:
    client.create("/q")
    service.proxy.break_at(stage[0], "Create2Request", fault)
    with pytest.raises(ConnectionLossError):
        client.create("/q/n-", b"mine", sequence=True)
    service.wait(lambda: client.states == ["suspended", "resumed"])
    created = ["n-0000000000"] if stage[0] == RESPONSE else []
    assert client.children("/q") == created
    assert client.create("/q/n-", sequence=True) == f"/q/n-{len(created):010d}"


@cases(BOTH_SIDES, stalled=[(RESPONSE, "*")])
def test_lost_multi_is_executed_whole_or_not_at_all(
    service: NetworkService, client: Client, stage: Stage, fault: Fault
) -> None:
    client.create("/epoch", b"1")
    operations: tuple[Operation, ...] = (Check("/epoch", 0), Create("/controller", b"me", True), Set("/epoch", b"2", 0))
    service.proxy.break_at(stage[0], "MultiRequest", fault)
    with pytest.raises(ConnectionLossError):
        client.multi(*operations)
    service.wait(lambda: client.states == ["suspended", "resumed"])
    data, stat = client.get("/epoch")
    if stage[0] == RESPONSE:
        assert (data, stat.version) == (b"2", 1)
        assert client.get("/controller")[1].ephemeral_owner == client.session.session_id
    else:
        assert (data, stat.version) == (b"1", 0)
        with pytest.raises(NoNodeError):
            client.get("/controller")


@cases(BOTH_SIDES)
def test_lost_read_is_repeated_and_sets_its_watch(
    service: NetworkService, client: Client, other: Client, stage: Stage, fault: Fault
) -> None:
    client.create("/a", b"1")
    service.proxy.break_at(stage[0], "GetDataRequest", fault)
    assert client.get("/a", watch=True)[0] == b"1"
    assert client.states == ["suspended", "resumed"]
    other.set("/a", b"2")
    assert client.take_events() == [("changed", "/a")]


@cases([(REQUEST, CONNECT)])
def test_session_that_expires_during_a_break_is_lost(
    service: NetworkService, client: Client, other: Client, stage: Stage, fault: Fault
) -> None:
    client.create("/mine", ephemeral=True)
    service.expire(client.session, lambda: service.proxy.break_at(*stage, fault))
    assert client.lost == 1 and client.session.lost and not client.session.suspended
    assert other.exists("/mine") is None


@pytest.mark.parametrize(
    "network", ["fake", "served", "served-uvloop", pytest.param(SERVER, marks=ONE_SERVER)], indirect=True
)
def test_session_of_a_killed_process_can_be_closed(service: NetworkService, client: Client, other: Client) -> None:
    """With its id and its password, within the session timeout."""
    client.create("/registration", ephemeral=True)
    key = client.session.key  # type: ignore[attr-defined]
    service.abandon(client.session)
    earlier = service.connect_by(key=key)
    assert earlier.session_id == key.session_id
    assert other.exists("/registration") is not None
    service.result(earlier.close)
    assert other.exists("/registration") is None
