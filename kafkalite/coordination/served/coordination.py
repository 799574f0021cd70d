"""Fail-over of the served tree: each broker of the machine can serve it, and the one that has the lock does.

    served = ServedCoordination("/var/lib/kafka/coordination", disk, clock, random, offload)
    await served.open()                                      # raises what makes the directory unusable
    connect_zookeeper(SERVERS, 18_000, then, dial=served.dial, ...)

1. Each attempt of a session to connect tries the lock first. So the back-off of the sessions drives the fail-over, and
   nothing polls. The process that gets the lock replays the journal and replaces the socket of the former one.
2. A take-over continues when the attempt that began it is cancelled: it may take longer than an attempt.
3. A process that is stopped (SIGSTOP) keeps the lock: all sessions are suspended until it continues or ends.
4. A lock file that is removed while it is held no longer excludes others, and without the socket nothing reaches the
   process: within 10 s it stops to serve, and the next process reads the file.
5. If the journal fails, the process stops to serve, and whichever process is next reads the file.
"""

import asyncio
import logging
import ssl as ssl_module
from collections.abc import Callable

from kafkalite._speedups.storage.file import Disk
from kafkalite.clock import Clock, Offload, Outcome, Random, Timer, await_outcome
from kafkalite.coordination.journal import SERVED_FORMAT
from kafkalite.coordination.journal_file import JournalFile
from kafkalite.coordination.served.directory import CoordinationDirectory, NewJournal
from kafkalite.coordination.served.local_socket import dial_directory, listen
from kafkalite.coordination.served.server import TreeServer
from kafkalite.coordination.transactions import JournaledTree
from kafkalite.rate_limited_log import RateLimitedLog
from kafkalite.slicing import Slicer

LOGGER = logging.getLogger("kafkalite.coordination")

SERVERS = "coordination-directory:1"
"""The servers for `connect_zookeeper`: a name for the log; `ServedCoordination.dial` ignores it."""

COMPACT_BYTES = 8 * 1024 * 1024
LOCK_CHECK_S = 10.0


class ServedCoordination:
    """The coordination service of the brokers of one machine, as one of them uses it.

    Arguments:
        path: the directory that the brokers share.
        disk: holds it.
        clock: times of nodes, timers of sessions.
        random: draws passwords.
        offload: reads and writes the journal; it must outlive `close`.
        refuse_from: the lowest descriptor that is reserved for logs; None = no limit.
    """

    def __init__(
        self,
        path: str,
        disk: Disk,
        clock: Clock,
        random: Random,
        offload: Offload,
        refuse_from: int | None = None,
    ) -> None:
        self.directory = CoordinationDirectory(disk, path)
        self._clock = clock
        self._random = random
        self._offload = offload
        self._refuse_from = refuse_from
        self._slicer = Slicer(clock, RateLimitedLog(LOGGER, clock).raised)
        self._tree: JournaledTree | None = None
        self._server: TreeServer | None = None
        self._listening: asyncio.Server | None = None
        self._taking: asyncio.Task[None] | None = None
        self._lock_timer: Timer | None = None
        self._closed = False

    @property
    def serving(self) -> bool:
        """Whether this process serves the tree."""
        return self._listening is not None

    async def open(self) -> None:
        """Check the directory, and serve it if no other process does. Raises OSError, JournalError."""
        self.directory.prepare()
        await self._serve_if_free()

    async def dial(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        ssl: ssl_module.SSLContext | None,
    ) -> None:
        """Connect to the process that serves, which may become this one; the `dial` of `connect_zookeeper`.

        Raises OSError, JournalError, ConnectionLossError.
        """
        await self._serve_if_free()
        await dial_directory(self.directory.path, protocol)

    async def close(self) -> None:
        """Stop to serve, once what is being written is durable; another process takes over. The sessions continue."""
        self._closed = True
        if self._taking is not None:
            await asyncio.wait([self._taking])
        if self._server is not None:
            self._stop_listening()
            await self._written()
        self._release()

    async def _written(self) -> None:
        """Wait for the job that writes the journal."""
        assert self._tree is not None
        written: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._tree.read(lambda: None, written.set_result)
        await written

    # Taking over.

    async def _serve_if_free(self) -> None:
        if self._listening is not None or self._closed:
            return
        if self._taking is None:
            if not self.directory.lock():
                return
            self._taking = asyncio.ensure_future(self._take_over())
        await asyncio.shield(self._taking)

    async def _take_over(self) -> None:
        """Serve; with the lock."""
        try:
            await self._serve()
        except BaseException:
            self._release()
            raise
        finally:
            self._taking = None

    async def _serve(self) -> None:
        jobs, directory = self._offload, self.directory
        data: bytes = (await await_outcome(lambda done: jobs.run(directory.read, done=done))).result()
        new: NewJournal = (
            await await_outcome(lambda done: self._slicer.run(directory.load_steps(data), done))
        ).result()
        file: JournalFile = (await await_outcome(lambda done: jobs.run(directory.open, new, done=done))).result()
        self._tree = JournaledTree(
            self._clock, new.loaded.tree, file, self._offload,
            version=SERVED_FORMAT, compact_bytes=COMPACT_BYTES, on_failure=self._failed,
        )  # fmt: skip
        self._server = TreeServer(self._tree, self._clock, self._random, self._refuse_from)
        self._listening = await listen(directory.path, self._server.accept)
        directory.note_socket()
        self._check_lock_later()
        LOGGER.info(
            "this broker serves the coordination directory %s: %d sessions continue",
            directory.path, len(self._server.sessions),
        )  # fmt: skip

    # Ends.

    def _failed(self) -> None:
        """The journal has failed: its file is in an unknown state."""
        assert self._tree is not None
        LOGGER.error("%s: the journal failed: %r", self.directory.path, self._tree.failure)
        self._stop_listening()
        self._release()

    def _check_lock_later(self) -> None:
        self._lock_timer = self._clock.call_at(self._clock.monotonic() + LOCK_CHECK_S, self._check_lock)

    def _check_lock(self) -> None:
        self._lock_timer = None
        tree = self._tree
        self._offload.run(self.directory.holds_names, done=lambda outcome: self._lock_checked(tree, outcome))

    def _lock_checked(self, tree: JournaledTree | None, outcome: Outcome) -> None:
        if tree is None or tree is not self._tree:
            return
        if outcome.error is None and outcome.value:
            self._check_lock_later()
            return
        reason = outcome.error or "removed or replaced, so another process may serve the same journal"
        LOGGER.error("%s: lock file or socket: %s; this process stops to serve", self.directory.path, reason)
        self._release()

    def _stop_listening(self) -> None:
        if self._lock_timer is not None:
            self._lock_timer.cancel()
            self._lock_timer = None
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        if self._server is not None:
            self._server.close()
            self._server = None

    def _release(self) -> None:
        self._stop_listening()
        if self._tree is not None:
            self._tree.close()
            self._tree = None
        self.directory.unlock()
