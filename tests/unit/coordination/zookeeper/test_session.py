"""The session against a fake server, in virtual time: what it sends and reports, and when."""

from kafkalite.coordination.errors import BadVersionError, ConnectionLossError
from kafkalite.coordination.tree import Check, Create, Set
from kafkalite.testing.virtual_loop import pass_time, run_virtually
from tests.unit.coordination.zookeeper.rig import HOST, PORT, Rig


def test_calls_are_pipelined_and_answered_in_order() -> None:
    async def main() -> None:
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

    run_virtually(main)


def test_reset_connection_fails_changes_at_once_and_repeats_reads() -> None:
    async def main() -> None:
        rig = Rig()
        session = await rig.connected()
        session.create("/a", b"", rig.note("create"))
        session.exists("/a", rig.note("exists"))
        rig.network.reset(HOST, PORT)
        await pass_time(0.001)
        assert rig.take() == ["suspended", ("create", ConnectionLossError)]
        assert session.suspended
        await pass_time(0.3)
        assert rig.take() == ["resumed", ("exists", None)]
        assert not session.suspended

    run_virtually(main)
