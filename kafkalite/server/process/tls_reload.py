"""Replaces the certificates of listeners for new connections, when their files or the dynamic configs have changed."""

import logging
from collections.abc import Callable
from functools import partial

from kafkalite.clock import Clock, Offload, Outcome
from kafkalite.config.security import TlsSettings
from kafkalite.net.server_tls import ServerTls

LOGGER = logging.getLogger("kafkalite.server")
CHECK_S = 5.0


class TlsReload:
    """Checks the files of all listeners with TLS every `CHECK_S` seconds, in jobs.

    Arguments:
        sides: the TLS side by listener name.
        settings: returns the current settings of a listener, None where they cannot be used.
        clock, offload: of the broker.
    """

    def __init__(
        self,
        sides: dict[str, ServerTls],
        settings: Callable[[str], TlsSettings | None],
        clock: Clock,
        offload: Offload,
    ) -> None:
        self._sides = sides
        self._settings = settings
        self._clock = clock
        self._offload = offload
        self._running: set[str] = set()

    def start(self) -> None:
        """Check the files from now on."""
        self._clock.call_at(self._clock.monotonic() + CHECK_S, self._check)

    def check(self) -> None:
        """Check settings and files now."""
        for name, side in self._sides.items():
            settings = self._settings(name)
            if settings is not None and name not in self._running:
                self._running.add(name)
                self._offload.run(side.refresh(settings), done=partial(self._checked, name))

    def _check(self) -> None:
        self.check()
        self.start()

    def _checked(self, name: str, outcome: Outcome) -> None:
        self._running.discard(name)
        self._sides[name].apply(outcome.result())
