"""What every coordination service does with nodes: versions, Stat, multi, check, sequence nodes, errors."""

import pytest

from kafkalite.coordination.errors import (
    BadArgumentsError,
    BadVersionError,
    CoordinationError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
)
from kafkalite.coordination.tree import Check, Create, Delete, Set
from tests.contract.coordination.conftest import Client
from tests.contract.coordination.services import Service


class TestStat:
    def test_create_node(self, service: Service, client: Client) -> None:
        before_ms = service.now_ms()
        client.create("/a", b"four")
        data, stat = client.get("/a")
        assert data == b"four"
        assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
        assert before_ms <= stat.ctime == stat.mtime <= service.now_ms()
        assert stat.czxid == stat.mzxid == stat.pzxid > 0
        assert (stat.data_length, stat.num_children, stat.ephemeral_owner) == (4, 0, 0)
        assert client.exists("/a") == stat

    def test_set_increments_the_version_and_updates_data_times_only(self, service: Service, client: Client) -> None:
        client.create("/a", b"1")
        _, before = client.get("/a")
        passed_ms = service.pass_time(1500)
        returned = client.set("/a", b"22")
        data, after = client.get("/a")
        assert data == b"22" and returned == after
        assert after.version == 1 and after.ctime == before.ctime
        assert before.mtime + passed_ms <= after.mtime <= service.now_ms()
        assert after.mzxid > before.mzxid and after.czxid == before.czxid and after.pzxid == before.pzxid

    def test_child_changes_update_cversion_and_pzxid_of_the_parent(self, client: Client) -> None:
        client.create("/a")
        _, empty = client.get("/a")
        client.create("/a/x")
        client.create("/a/y")
        _, full = client.get("/a")
        client.delete("/a/x")
        _, less = client.get("/a")
        assert (full.num_children, full.cversion, less.num_children, less.cversion) == (2, 2, 1, 3)
        assert empty.pzxid < full.pzxid < less.pzxid
        assert less.version == 0 and less.mzxid == empty.mzxid

    def test_every_change_increases_the_zxid(self, client: Client) -> None:
        zxids = []
        for number in range(5):
            client.create(f"/n{number}")
            zxids.append(client.get(f"/n{number}")[1].czxid)
        assert zxids == sorted(set(zxids))

    def test_the_owner_of_an_ephemeral_node_is_its_session(self, client: Client) -> None:
        client.create("/a", ephemeral=True)
        assert client.get("/a")[1].ephemeral_owner == client.session.session_id != 0


class TestVersions:
    def test_set_and_delete_compare_the_version(self, client: Client) -> None:
        client.create("/a")
        client.set("/a", b"1", version=0)
        with pytest.raises(BadVersionError):
            client.set("/a", b"2", version=0)
        with pytest.raises(BadVersionError):
            client.delete("/a", version=0)
        assert client.get("/a")[0] == b"1"
        client.delete("/a", version=1)
        assert client.exists("/a") is None

    def test_one_of_two_concurrent_compare_and_set_succeeds(self, client: Client, other: Client) -> None:
        client.create("/a")
        seen, also_seen = client.get("/a")[1], other.get("/a")[1]
        client.set("/a", b"mine", seen.version)
        with pytest.raises(BadVersionError):
            other.set("/a", b"theirs", also_seen.version)
        assert other.get("/a")[0] == b"mine"


class TestErrors:
    def test_operations_on_a_missing_node_fail(self, client: Client) -> None:
        for call in (
            lambda: client.get("/a"),
            lambda: client.children("/a"),
            lambda: client.set("/a", b""),
            lambda: client.delete("/a"),
            lambda: client.create("/a/b"),
        ):
            with pytest.raises(NoNodeError) as caught:
                call()
            assert caught.value.path in ("/a", "/a/b") and caught.value.code == -101
        assert client.exists("/a") is None

    def test_create_of_an_existing_node_fails(self, client: Client) -> None:
        client.create("/a", b"first")
        with pytest.raises(NodeExistsError):
            client.create("/a", b"second")
        assert client.get("/a")[0] == b"first"

    def test_delete_of_a_node_with_children_fails(self, client: Client) -> None:
        client.create("/a")
        client.create("/a/b")
        with pytest.raises(NotEmptyError):
            client.delete("/a")
        assert client.children("/a") == ["b"]

    def test_ephemeral_nodes_have_no_children(self, client: Client) -> None:
        client.create("/a", ephemeral=True)
        with pytest.raises(NoChildrenForEphemeralsError):
            client.create("/a/b")
        assert client.children("/a") == []

    @pytest.mark.parametrize("path", ["", "a", "//", "/a/", "/a//b", "/./a", "/a/..", "/a\x00b", "/\ud800"])
    def test_invalid_paths_are_rejected(self, client: Client, path: str) -> None:
        for call in (lambda: client.create(path), lambda: client.get(path), lambda: client.exists(path)):
            with pytest.raises(BadArgumentsError):
                call()

    def test_root_cannot_be_deleted(self, client: Client) -> None:
        with pytest.raises(CoordinationError):
            client.delete("/")
        with pytest.raises(CoordinationError):
            client.create("/")
        assert client.exists("/") is not None

    def test_data_above_the_limit_is_rejected(self, client: Client) -> None:
        client.create("/a", b"kept")
        with pytest.raises(BadArgumentsError):
            client.set("/a", bytes(16 * 1024 * 1024 + 1))
        assert client.get("/a")[0] == b"kept"


class TestMulti:
    def test_multi_applies_in_order_with_one_zxid(self, client: Client) -> None:
        results = client.multi(
            Create("/a", b"1"), Create("/a/b", b"2"), Set("/a", b"3", 0), Check("/a", 1), Delete("/a/b", 0)
        )
        assert [type(result).__name__ for result in results] == [
            "CreatedNode",
            "CreatedNode",
            "Stat",
            "NoneType",
            "NoneType",
        ]
        assert results[1].path == "/a/b" and results[2].version == 1
        data, stat = client.get("/a")
        assert data == b"3" and stat.czxid == stat.mzxid == stat.pzxid == results[0].stat.czxid
        assert client.children("/a") == []

    @pytest.mark.parametrize(
        ("failing", "error"),
        [
            (Check("/kept", 7), BadVersionError),
            (Check("/missing"), NoNodeError),
            (Create("/kept"), NodeExistsError),
            (Delete("/new"), NotEmptyError),
            (Set("/kept", b"", 9), BadVersionError),
            (Create("/e/child"), NoChildrenForEphemeralsError),
        ],
    )
    def test_failed_multi_changes_nothing(
        self, client: Client, failing: Create | Set | Delete | Check, error: type[CoordinationError]
    ) -> None:
        client.create("/kept", b"old")
        client.create("/goes")
        client.create("/e", ephemeral=True)
        before = {path: client.get(path) for path in ("/", "/kept", "/goes", "/e")}
        client.children("/", watch=True)
        client.get("/kept", watch=True)
        with pytest.raises(error) as caught:
            client.multi(
                Set("/kept", b"new"), Delete("/goes"), Create("/new"), Create("/new/n", sequence=True), Delete("/e"),
                Create("/e", ephemeral=True), failing, Create("/never"),
            )  # fmt: skip
        assert caught.value.at == 6
        assert {path: client.get(path) for path in before} == before
        assert client.exists("/new") is None
        assert client.take_events() == []
        client.create("/next")
        assert client.get("/next")[1].czxid > before["/e"][1].czxid
        client.close()

    def test_empty_multi_changes_nothing(self, client: Client) -> None:
        assert client.multi() == []


class TestSequence:
    def test_sequential_names_have_ten_digits(self, client: Client) -> None:
        client.create("/q")
        assert [client.create("/q/n_", sequence=True) for _ in range(3)] == [
            "/q/n_0000000000",
            "/q/n_0000000001",
            "/q/n_0000000002",
        ]

    def test_sequence_numbers_are_never_reused(self, client: Client) -> None:
        client.create("/q")
        client.delete(client.create("/q/a", sequence=True))
        client.delete(client.create("/q/b", sequence=True))
        client.create("/q/plain")
        assert client.create("/q/c", sequence=True) == "/q/c0000000003"

    def test_sequential_node_without_prefix_may_be_ephemeral(self, client: Client, other: Client) -> None:
        client.create("/q")
        assert client.create("/q/", sequence=True, ephemeral=True) == "/q/0000000000"
        client.close()
        assert other.children("/q") == []
