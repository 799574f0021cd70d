"""What every coordination service does with watches, sessions and lost answers."""

import pytest

from kafkalite.clock import Outcome
from kafkalite.coordination.errors import NoNodeError, SessionExpiredError
from kafkalite.coordination.tree import Create, Delete, Set
from tests.contract.coordination.conftest import Client
from tests.contract.coordination.services import Service


class TestWatches:
    def test_data_watch_fires_once(self, client: Client, other: Client) -> None:
        client.create("/a")
        client.get("/a", watch=True)
        other.set("/a", b"1")
        other.set("/a", b"2")
        assert client.take_events() == [("changed", "/a")]

    def test_exists_watch_fires_on_creation_change_and_deletion(self, client: Client, other: Client) -> None:
        assert client.exists("/a", watch=True) is None
        other.create("/a")
        assert client.take_events() == [("created", "/a")]
        client.exists("/a", watch=True)
        other.set("/a", b"1")
        assert client.take_events() == [("changed", "/a")]
        client.exists("/a", watch=True)
        other.delete("/a")
        assert client.take_events() == [("deleted", "/a")]

    def test_child_watch_fires_on_creation_and_deletion_but_not_on_data(self, client: Client, other: Client) -> None:
        client.create("/a")
        client.children("/a", watch=True)
        other.set("/a", b"data")
        assert client.take_events() == []
        other.create("/a/b")
        assert client.take_events() == [("children", "/a")]
        client.children("/a", watch=True)
        other.set("/a/b", b"data")
        other.create("/a/b/c")
        assert client.take_events() == []
        other.delete("/a/b/c")
        other.delete("/a/b")
        assert client.take_events() == [("children", "/a")]

    def test_deleted_node_notifies_a_watcher_of_data_and_existence_once(self, client: Client, other: Client) -> None:
        client.create("/a")
        client.get("/a", watch=True)
        client.children("/a", watch=True)
        other.delete("/a")
        assert client.take_events().count(("deleted", "/a")) == 1

    def test_failed_read_sets_no_watch(self, client: Client, other: Client) -> None:
        with pytest.raises(NoNodeError):
            client.get("/a", watch=True)
        with pytest.raises(NoNodeError):
            client.children("/a", watch=True)
        other.create("/a")
        other.create("/a/b")
        assert client.take_events() == []

    def test_duplicate_watch_fires_once(self, client: Client, other: Client) -> None:
        client.create("/a")
        client.get("/a", watch=True)
        client.get("/a", watch=True)
        other.set("/a", b"1")
        assert client.take_events() == [("changed", "/a")]

    def test_every_watcher_is_notified(self, client: Client, other: Client) -> None:
        client.create("/a")
        client.get("/a", watch=True)
        other.get("/a", watch=True)
        client.set("/a", b"1")
        assert client.take_events() == other.take_events() == [("changed", "/a")]

    def test_multi_notifies_watchers_after_its_changes(self, service: Service, client: Client, other: Client) -> None:
        client.create("/a", b"old")
        client.create("/list")
        seen = []

        def look(outcome: Outcome) -> None:
            seen.append(outcome.value[0])

        client.session.get("/a", lambda outcome: None, lambda event: client.session.get("/a", look))
        service.run_until_idle()
        client.children("/list", watch=True)
        other.multi(Set("/a", b"new"), Create("/list/x"), Create("/list/y"), Delete("/list/y"))
        assert client.take_events() == [("children", "/list")]
        assert seen == [b"new"]

    def test_event_precedes_the_response_with_the_change(self, service: Service, client: Client) -> None:
        order: list[str] = []
        client.create("/a")
        client.session.get("/a", lambda outcome: None, lambda event: order.append("event"))
        service.run_until_idle()
        client.session.set("/a", b"1", lambda outcome: order.append("set"))
        client.session.get("/a", lambda outcome: order.append(outcome.value[0].decode()))
        service.run_until_idle()
        assert order == ["event", "set", "1"]


class TestSessions:
    def test_ephemeral_nodes_are_deleted_with_their_session(self, client: Client, other: Client) -> None:
        client.create("/mine", ephemeral=True)
        client.create("/stays")
        other.create("/theirs", ephemeral=True)
        other.exists("/mine", watch=True)
        other.children("/", watch=True)
        client.close()
        assert client.session.lost
        assert sorted(other.take_events()) == [("children", "/"), ("deleted", "/mine")]
        assert other.exists("/mine") is None and other.exists("/stays") and other.exists("/theirs")

    def test_expired_session_is_reported_once_and_rejects_requests(self, service: Service, other: Client) -> None:
        client = Client(service)
        client.create("/mine", ephemeral=True)
        client.get("/mine", watch=True)
        service.expire(client.session)
        assert client.lost == 1 and client.session.lost
        assert other.exists("/mine") is None
        for call in (lambda: client.get("/"), lambda: client.create("/x"), lambda: client.multi(Create("/y"))):
            with pytest.raises(SessionExpiredError):
                call()
        assert other.exists("/x") is None and client.take_events() == []
        client.close()
        assert client.lost == 1

    def test_closed_session_removes_its_watches(self, client: Client, other: Client) -> None:
        other.create("/a")
        client.get("/a", watch=True)
        client.children("/a", watch=True)
        client.exists("/b", watch=True)
        client.close()
        other.set("/a", b"1")
        other.create("/a/x")
        other.create("/b")
        assert client.take_events() == []

    def test_another_session_may_delete_an_ephemeral_node(self, client: Client, other: Client) -> None:
        client.create("/a", ephemeral=True)
        other.delete("/a")
        other.create("/a")
        client.close()
        assert other.exists("/a") is not None, "it is no longer the session's"


class TestOrder:
    def test_responses_keep_the_order_of_the_calls(self, service: Service, client: Client) -> None:
        order: list[object] = []

        def note(outcome: Outcome) -> None:
            order.append(type(outcome.error) if outcome.error else outcome.value)

        client.session.create("/a", b"1", note)
        client.session.get("/b", note)
        client.session.set("/a", b"2", note)
        client.session.exists("/b", note)
        client.session.delete("/a", note)
        service.run_until_idle()
        assert [getattr(one, "path", None) or getattr(one, "version", one) for one in order] == [
            "/a", NoNodeError, 1, None, None,
        ]  # fmt: skip

    def test_reading_back_shows_the_outcome_of_a_lost_reply(
        self, service: Service, client: Client, other: Client
    ) -> None:
        """A change without a response: another session sees whether it happened, and the version proves it."""
        client.create("/epoch", b"1")
        client.session.multi((Create("/controller", b"me", True), Set("/epoch", b"2", 0)), lambda outcome: None)
        service.run_until_idle()
        data, stat = other.get("/epoch")
        owner = other.get("/controller")[1].ephemeral_owner
        assert (data, stat.version, owner) == (b"2", 1, client.session.session_id)

    def test_callback_that_raises_does_not_prevent_other_notifications(self, service: Service, client: Client) -> None:
        received: list[str] = []
        client.create("/a")

        def fail(event: object) -> None:
            raise ZeroDivisionError

        client.session.get("/a", lambda outcome: None, fail)
        service.run_until_idle()
        with pytest.raises(ZeroDivisionError):
            client.session.set("/a", b"1", lambda outcome: received.append("set"))
            service.run_until_idle()
        assert received == ["set"]
        client.set("/a", b"2")
