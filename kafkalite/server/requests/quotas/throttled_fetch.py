"""Fetches of clients with quotas. A throttled fetch is answered at once without records, as in Kafka.

1. A fetch reads at most what the quota admits now.
2. The bytes of a response are charged when it is sent: those of a throttled one are not.
3. The first response of a session that is throttled opens no session, so that the client names its partitions again.
"""

from typing import TYPE_CHECKING, Any

from kafkalite.cluster.partition.reads import PartitionRead
from kafkalite.protocol.messages.fetch import FetchRequest, FetchResponse
from kafkalite.server.requests.call import PartitionCall
from kafkalite.server.requests.fetch_context import FetchContext
from kafkalite.server.requests.pending_fetch import PendingFetch
from kafkalite.server.requests.quotas.charge import Charge
from kafkalite.server.requests.rack_aware_fetch import RackAwareFetch
from kafkalite.state.fetch_sessions import SESSION_NONE

if TYPE_CHECKING:
    Base = PendingFetch
else:
    Base = object


class FetchThrottling(Base):
    """Answers a fetch without records while its client is throttled."""

    __slots__ = ()

    def __init__(self, call: PartitionCall, request: FetchRequest, context: FetchContext) -> None:
        super().__init__(call, request, context)
        limit = self._charge.fetch_bytes_max
        if limit is not None:
            self._bytes_max = min(self._bytes_max, limit)
            self._bytes_min = min(self._bytes_min, limit)

    @property
    def _charge(self) -> Charge:
        call: Any = self._call
        charge: Charge = call.charge
        return charge

    def _resume(self, *, hurried: bool) -> None:
        self._charge.resume()
        super()._resume(hurried=hurried)
        self._charge.pause()

    def _answer(self, reads: list[PartitionRead]) -> None:
        if not self._throttled(reads):
            super()._answer(reads)

    def _go_on_in_steps(self, missing: int, reads: list[PartitionRead]) -> None:
        if missing > 0 or not self._throttled(reads):
            super()._go_on_in_steps(missing, reads)

    def _throttled(self, reads: list[PartitionRead]) -> bool:
        """Answer without records if the client is throttled."""
        if not self._charge.throttles_fetch(sum(found.size for found in reads)):
            return False
        session_id = self._context.session_id
        if session_id != SESSION_NONE and not self._context.is_incremental:
            self._call.context.fetch_sessions.close(session_id)
            session_id = SESSION_NONE
        self._call.answer(FetchResponse(session_id=session_id, responses=[]))
        return True


class ThrottledFetch(FetchThrottling, PendingFetch):
    """A fetch of a client with quotas."""

    __slots__ = ()


class ThrottledRackAwareFetch(FetchThrottling, RackAwareFetch):
    """A fetch of a client with quotas in a rack."""

    __slots__ = ()


THROTTLED: dict[type[PendingFetch], type[PendingFetch]] = {
    PendingFetch: ThrottledFetch,
    RackAwareFetch: ThrottledRackAwareFetch,
}
