"""A broker with TLS, an identity and access control lists towards Apache ZooKeeper, and others that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from kafkalite_sdk.admin import NewTopic, Resource
from kafkalite_sdk.blocking import Admin
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl

from kafkalite.config.table_security import DIGEST_FILE
from kafkalite.testing.thread import BrokerThread
from tests.kit import jvm
from tests.kit.broker_processes import BrokerProcesses
from tests.kit.brokers import Kafkalite
from tests.kit.certificates import Authority
from tests.kit.zookeeper import ZooKeeper, start_zookeeper
from tests.story.cli.test_cluster_commands import run

pytestmark = [
    pytest.mark.skipif(jvm.java_missing() is not None, reason=f"Apache ZooKeeper: {jvm.java_missing()}"),
    pytest.mark.xdist_group("zookeeper"),
    pytest.mark.timeout(400),
]
IDENTITY = "kafka:secret"
ALL, READ = 31, 1
TICK_MS, SESSION_MS = 3_000, 60_000
SENSITIVE = ("/kafka/config/brokers", "/kafka/config/users", "/kafka/kafkalite/scram_secret")


class Secured(NamedTuple):
    """A ZooKeeper, and what brokers need to use it."""

    zookeeper: ZooKeeper
    authority: Authority
    folder: Path

    def settings(self, name: str, identity: str = IDENTITY, chroot: str = "/kafka", **more: object) -> dict[str, str]:
        """Of a broker with a certificate of this name; `more` below `zookeeper.ssl.`, with underscores."""
        digest = self.folder / f"{name}.digest"
        digest.write_text(identity)
        digest.chmod(0o600)
        given: dict[str, object] = {
            "zookeeper.connect": f"{self.zookeeper.secure_address}{chroot}",
            "zookeeper.set.acl": "true",
            "zookeeper.session.timeout.ms": SESSION_MS,  # none expires
            DIGEST_FILE: digest,
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.truststore.location": self.authority.cert,
            "zookeeper.ssl.keystore.location": self.authority.issue(name).bundle(),
            **{f"zookeeper.ssl.{key.replace('_', '.')}": value for key, value in more.items()},
        }
        return {key: str(value) for key, value in given.items()}

    @contextmanager
    def client(self, identity: str | None = None) -> Iterator[KazooClient]:
        """A session without TLS, which has no certificate."""
        client = KazooClient(self.zookeeper.address, auth_data=None if identity is None else [("digest", identity)])
        client.start(timeout=120)
        try:
            yield client
        finally:
            client.stop()
            client.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder / "authority")
    stores = (authority.issue("zookeeper").bundle(), authority.cert)
    zookeeper = start_zookeeper(folder / "zookeeper", tick_ms=TICK_MS, stores=stores)
    yield Secured(zookeeper, authority, folder)
    zookeeper.kill()


@pytest.fixture(scope="module")
def cluster(secured: Secured) -> Iterator[BrokerProcesses]:
    """One broker, which has written topics, configs of topics, brokers and groups, and the controller's nodes."""
    with BrokerProcesses(secured.folder / "brokers", secured.settings("broker1"), ids=(1,)) as running:
        with Admin(running.bootstrap) as admin:
            admin.topics.create(NewTopic("orders", partitions=2, configs={"retention.ms": "3600000"})).check()
            changes = {
                Resource.topic("orders"): {"retention.ms": "7200000"},
                Resource.broker(1): {"log.cleaner.threads": "2"},
                Resource.group("billing"): {"consumer.session.timeout.ms": "50000"},
            }
            admin.configs.alter(changes).check()
        yield running


def walk(client: KazooClient, path: str) -> Iterator[str]:
    yield path
    for name in client.get_children(path):
        yield from walk(client, f"{path}/{name}")


def permissions(client: KazooClient, path: str) -> dict[str, int]:
    """Identity -> permissions of a node; the digest without the hash of its password."""
    acls = client.get_acls(path)[0]
    return {f"{each.id.scheme}:{each.id.id.partition(':')[0]}": each.perms for each in acls}


def test_every_node_has_the_access_control_list_of_kafka(secured: Secured, cluster: BrokerProcesses) -> None:
    owned = {"digest:kafka": ALL, "x509:CN=broker1": ALL}
    with secured.client(IDENTITY) as client:
        found = {path: permissions(client, path) for path in walk(client, "/kafka")}
    for path, has in found.items():
        expected = owned if path.startswith(SENSITIVE) else {**owned, "world:anyone": READ}
        assert has == ({"world:anyone": ALL} if path == "/kafka/consumers" else expected), path
    assert found.keys() >= {
        f"/kafka{path}"
        for path in (
            *("/controller", "/controller_epoch", "/cluster/id", "/brokers/ids/1", "/config/brokers/1"),
            *("/brokers/topics/orders/partitions/1/state", "/config/topics/orders", "/kafkalite/groups/billing"),
            *("/config/changes/config_change_0000000000", "/kafkalite/group_changes"),
        )
    }


def test_other_clients_read_but_change_nothing(secured: Secured, cluster: BrokerProcesses) -> None:
    calls: list[Callable[[KazooClient], object]] = [
        lambda client: client.create("/kafka/brokers/topics/other", b""),
        lambda client: client.set("/kafka/brokers/topics/orders", b""),
        lambda client: client.delete("/kafka/controller"),
        lambda client: client.get("/kafka/config/brokers/1"),
    ]
    for identity in (None, "kafka:guess"):
        with secured.client(identity) as client:
            assert client.get_children("/kafka/brokers/topics") == ["orders"]
            for call in calls:
                with pytest.raises(NoAuthError):
                    call(client)


def refused(directory: Path, settings: Mapping[str, str]) -> str:
    """Start a second broker, which must end; its error."""
    broker = Kafkalite(directory, {**settings, "broker.id": "2"})
    broker.launch()
    assert broker.wait() == 2, broker.said()
    (error,) = [line for line in broker.said().splitlines() if line.startswith("kafkalite: ")]
    return error


def test_a_broker_with_other_credentials_is_refused_with_the_reason(
    secured: Secured, cluster: BrokerProcesses, tmp_path: Path
) -> None:
    where = f"{secured.zookeeper.secure_address}/kafka"
    error = refused(tmp_path / "1", secured.settings("broker2", "kafka:guess"))
    assert error.startswith(f"kafkalite: {where}: no permission: /")
    assert error.endswith(f"; another identity owns the nodes: check {DIGEST_FILE} and zookeeper.ssl.keystore.location")

    others = Authority(tmp_path / "others", "others")
    error = refused(tmp_path / "2", secured.settings("broker2", truststore_location=others.cert))
    assert f"kafkalite: {where}: there is no TLS connection (" in error
    assert "the certificate of the server is not accepted: unable to get local issuer certificate" in error

    error = refused(tmp_path / "3", secured.settings("broker2", keystore_location=others.issue("broker2").bundle()))
    assert "the TLS handshake has failed: " in error
    assert error.endswith("check zookeeper.ssl.truststore.location and zookeeper.ssl.keystore.location")
    (broker_id,) = cluster.agreed().ports
    assert broker_id == 1


@contextmanager
def closed_root(secured: Secured) -> Iterator[None]:
    """Only an administrator creates nodes below `/`."""
    with secured.client("admin:secret") as client:
        client.set_acls("/", [make_digest_acl("admin", "secret", all=True), make_acl("world", "anyone", read=True)])
        try:
            yield
        finally:
            client.set_acls("/", OPEN_ACL_UNSAFE)


def test_another_broker_with_the_identity_joins(secured: Secured, cluster: BrokerProcesses, tmp_path: Path) -> None:
    """Its certificate has another name, so the digest is what both have in common. It cannot create a chroot, and need
    not, as it exists.
    """
    settings = secured.settings("broker2", enabled_protocols="TLSv1.3,TLSv1.2")
    with closed_root(secured), BrokerProcesses(tmp_path, settings, ids=(2,)) as second:
        with secured.client(IDENTITY) as client:
            assert sorted(client.get_children("/kafka/brokers/ids")) == ["1", "2"]
            assert permissions(client, "/kafka/brokers/ids/2") == {
                "digest:kafka": ALL, "x509:CN=broker2": ALL, "world:anyone": READ,
            }  # fmt: skip
        assert second.brokers[2].stop() == 0


def config_file(folder: Path, settings: Mapping[str, str]) -> str:
    path = folder / "server.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    return str(path)


def test_commands_use_the_settings_of_a_broker(secured: Secured, cluster: BrokerProcesses, tmp_path: Path) -> None:
    servers, node = secured.settings("tool")["zookeeper.connect"], "/config/brokers/1"
    config = config_file(tmp_path, secured.settings("tool"))
    assert '"log.cleaner.threads":"2"' in run("zk", "get", servers, node, "--zookeeper-config", config).stdout
    done = run("zk", "get", f"{secured.zookeeper.address}/kafka", node, code=2)
    assert "another identity owns the nodes: check" in done.stderr and done.stderr.count("\n") == 1
    assert done.stderr.endswith(" in --zookeeper-config\n")


def test_tree_leaves_out_what_may_not_be_read(secured: Secured, cluster: BrokerProcesses, tmp_path: Path) -> None:
    config = config_file(tmp_path, secured.settings("tool"))
    owned = run("zk", "tree", secured.settings("tool")["zookeeper.connect"], "/config", "--zookeeper-config", config)
    nodes = [line.split()[0] for line in owned.stdout.splitlines()]
    assert "/config/brokers/1" in nodes and owned.stderr == ""
    other = run("zk", "tree", f"{secured.zookeeper.address}/kafka", "/config")
    readable = [path for path in nodes if not f"/kafka{path}".startswith(SENSITIVE)]
    assert [line.split()[0] for line in other.stdout.splitlines()] == readable
    assert other.stderr == "kafkalite: 2 node(s) are left out: no permission to read them\n"
    refusal = run("zk", "tree", f"{secured.zookeeper.address}/kafka", "/config/brokers", code=2)
    assert "no permission: /config/brokers; another identity owns the nodes" in refusal.stderr


def test_an_adopted_tree_has_access_control_lists(secured: Secured, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with BrokerThread(data) as alone, Admin(alone.address) as admin:
        admin.topics.create("adopted").check()
    settings = secured.settings("tool", chroot="/adopted")
    config = config_file(tmp_path, settings)
    servers = settings["zookeeper.connect"]
    done = run("cluster", "adopt", "--data", data, "--zookeeper", servers, "--zookeeper-config", config)
    assert done.stdout.splitlines()[1] == (
        f"next: kafkalite serve --config {config} --data {data} --set zookeeper.connect={servers}"
    )
    owned = {"digest:kafka": ALL, "x509:CN=tool": ALL}
    with secured.client(IDENTITY) as client:
        for path in ("/adopted", "/adopted/cluster/id", "/adopted/brokers/topics/adopted/partitions/0/state"):
            assert permissions(client, path) == {**owned, "world:anyone": READ}
