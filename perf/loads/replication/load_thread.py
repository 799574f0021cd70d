"""A thread that produces beside a measurement, and ends with it."""

import threading
from types import TracebackType
from typing import Self

from perf.errors import VerificationError


class LoadThread:
    """Within the `with` block `run` is called in a thread; its failure is raised at the end of the block.

    Attributes:
        ended: set at the end of the block.
        failure: why `run` has ended before, or None.
    """

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.failure: VerificationError | None = None
        self._thread = threading.Thread(target=self.run)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.started()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
        if error is None and self.failure is not None:
            raise self.failure

    def _end(self) -> None:
        self.ended.set()
        self._thread.join()

    def started(self) -> None:
        """Called before the block begins; waits until the thread produces, if that matters."""

    def run(self) -> None:
        """Produce until `ended` is set; on a failure, set `failure` and return."""
        raise NotImplementedError
