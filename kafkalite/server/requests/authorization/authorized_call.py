"""`AuthorizedCall`: a call of a broker with an authorizer."""

from typing import Any

from kafkalite._speedups.codec import Encoded, RequestHeader, encode_elements
from kafkalite._speedups.net.framing import Reply
from kafkalite.server.requests.authorization.decisions import KeptAuthorization, decisions_of
from kafkalite.server.requests.call import Call, Context


class AuthorizedCall(Call[Context]):
    """A call whose response gets the entries that were refused before its handler ran.

    Arguments:
        context, reply, response_type, version, header: as for `Call`; the context has an authorizer.

    Attributes:
        refused: entries for an array of the response, by its name; None = nothing was refused.
        refused_topics: entries for topics of groups of an OffsetFetch, by group.
    """

    __slots__ = ("_authorization", "refused", "refused_topics")

    def __init__(
        self,
        context: Context,
        reply: Reply,
        response_type: type[Any],
        version: int,
        header: RequestHeader,
    ) -> None:
        super().__init__(context, reply, response_type, version, header)
        assert context.authorizer is not None
        decisions = decisions_of(context.authorizer, reply.connection)
        self._authorization = decisions.authorization(response_type)
        self.refused: tuple[str, list[Any]] | None = None
        self.refused_topics: dict[str, list[Any]] = {}

    @property
    def authorization(self) -> KeptAuthorization:
        """What its principal may do."""
        return self._authorization

    def add_refused_topics(self, group: str, topics: list[Any]) -> list[Any]:
        """Return the topics of a group of an OffsetFetch with those that were refused."""
        refused = self.refused_topics.get(group)
        return topics if refused is None else self._joined(topics, refused)

    def _joined(self, present: list[Any], refused: list[Any]) -> list[Any]:
        if any(isinstance(each, Encoded) for each in present):
            refused = [encode_elements(refused, self.response_type, self.version)]
        return [*present, *refused]

    def answer(self, response: Any) -> None:
        """Send the response with the refused entries; one that fails as a whole has no entries."""
        if self.refused is not None and not getattr(response, "error_code", 0):
            name, entries = self.refused
            setattr(response, name, self._joined(getattr(response, name), entries))
        super().answer(response)
