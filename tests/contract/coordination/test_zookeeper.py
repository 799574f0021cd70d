"""What only a real server shows: access control, and sessions that outlive the process of the server."""

from pathlib import Path

import pytest
import uvloop

from kafkalite.coordination.errors import NoAuthError
from kafkalite.coordination.tree import Create
from kafkalite.coordination.zookeeper import records
from kafkalite.coordination.zookeeper.access import Access
from tests.contract.coordination.conftest import LOOPS, TICK_MS, Client
from tests.contract.coordination.services import NetworkService, ServerService
from tests.kit import jvm
from tests.kit.zookeeper import start_zookeeper

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.timeout(180)]


@pytest.fixture(params=LOOPS)
def service(request: pytest.FixtureRequest, zookeeper_address: str) -> NetworkService:
    service = ServerService(LOOPS[request.param](), zookeeper_address)
    request.addfinalizer(service.close)
    return service


def test_nodes_of_an_identity_are_closed_to_all_others(service: NetworkService, client: Client) -> None:
    owner = service.connect_by(access=Access(digest=b"kafka:secret", acl=lambda path: records.CREATOR_ACL))
    service.result(lambda then: owner.create("/closed", b"1", then))
    service.result(lambda then: owner.multi([Create("/also", b"2")], then))
    for call in (
        lambda: client.get("/closed"),
        lambda: client.set("/also", b""),
        lambda: client.create("/closed/n"),
        lambda: client.multi(Create("/open"), Create("/closed/n")),
    ):
        with pytest.raises(NoAuthError):
            call()
    assert client.exists("/open") is None
    same = service.connect_by(access=Access(digest=b"kafka:secret"))
    assert service.result(lambda then: same.get("/closed", then))[0] == b"1"
    with pytest.raises(NoAuthError):
        other = service.connect_by(access=Access(digest=b"kafka:other"))
        service.result(lambda then: other.get("/closed", then))


@pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}")
def test_session_outlives_the_process_of_the_server(tmp_path: Path) -> None:
    """Its ephemeral nodes and its watches, too; ZooKeeper keeps sessions in its log and extends them at its start."""
    server = start_zookeeper(tmp_path, tick_ms=TICK_MS)
    service = ServerService(uvloop.new_event_loop(), server.address)
    try:
        client, other = Client(service), Client(service)
        client.create("/mine", ephemeral=True)
        client.create("/a", b"1")
        client.get("/a", watch=True)
        session_id = client.session.session_id
        server.kill()
        service.wait(lambda: client.states == other.states == ["suspended"])
        server = start_zookeeper(tmp_path, int(server.address.rpartition(":")[2]), TICK_MS)
        service.wait(lambda: client.states == other.states == ["suspended", "resumed"])
        assert client.session.session_id == session_id
        assert other.get("/mine")[1].ephemeral_owner == session_id
        assert client.take_events() == []
        other.set("/a", b"2")
        assert client.take_events() == [("changed", "/a")]
    finally:
        service.close()
        server.kill()
