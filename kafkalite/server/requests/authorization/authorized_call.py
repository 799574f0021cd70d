"""`AuthorizedCall`: a call of a broker with an authorizer."""

from typing import Any

from kafkalite._speedups.codec import RequestHeader
from kafkalite._speedups.net.framing import Reply
from kafkalite.server.requests.authorization.decision_cache import KeptAuthorization, decisions_of
from kafkalite.server.requests.authorization.refusals import join_arrays
from kafkalite.server.requests.call import Call, Context


class AuthorizedCall(Call[Context]):
    """A call whose response gets the entries that were refused before its handler ran. `authorized_call` makes it.

    Attributes:
        authorization: what its principal may do.
        refused: entries for an array of the response, by its name; None = nothing was refused.
        refused_topics: entries for topics of groups of an OffsetFetch, by group.
    """

    __slots__ = ("authorization", "refused", "refused_topics")

    authorization: KeptAuthorization
    refused: tuple[str, list[Any]] | None
    refused_topics: dict[str, list[Any]] | None

    def add_refused_topics(self, group: str, topics: list[Any]) -> list[Any]:
        """Return the topics of a group of an OffsetFetch with those that were refused."""
        refused = None if self.refused_topics is None else self.refused_topics.get(group)
        return topics if refused is None else self._joined(topics, refused)

    def add_refused(self, response: Any) -> None:
        """Add the refused entries to the response; one that fails as a whole has no entries."""
        if self.refused is not None and not getattr(response, "error_code", 0):
            name, entries = self.refused
            setattr(response, name, self._joined(getattr(response, name), entries))

    def _joined(self, present: list[Any], refused: list[Any]) -> list[Any]:
        return join_arrays(self.response_type, self.version, present, refused)


AnyCall = AuthorizedCall[Any]


def authorized_call(
    context: Any, reply: Reply, response_type: type[Any], version: int, header: RequestHeader
) -> AnyCall:
    """Return the call of a request of a broker with an authorizer. Each request makes one, so the class has no
    `__init__` of its own, which would cost as much as all of this.

    Arguments:
        context, reply, response_type, version, header: as for `Call`; the context has an authorizer.
    """
    call: AnyCall = AuthorizedCall(context, reply, response_type, version, header)
    authorize(call)
    return call


def authorize(call: AnyCall) -> None:
    """Set what the principal of a new call may do."""
    decisions = decisions_of(call.context.authorizer, call.reply.connection)
    call.authorization = decisions.authorization(call.response_type)
    call.refused = call.refused_topics = None
