"""One request being served: what a handler may know of it, and how it is answered."""

from typing import TYPE_CHECKING, Any

from kafkalite._speedups.codec import RequestHeader, encode_parts, response_header
from kafkalite._speedups.framing import Connection, Reply

if TYPE_CHECKING:
    from kafkalite.server.broker import Broker


class Call:
    """A request on its way through a handler.

    Attributes:
        broker: the broker that serves it.
        reply: the one-shot answer slot of the connection.
        response_type: the message class of the answer.
        version: in which the answer is written, the request's.
        header: of the request.

    A handler returns the response, or None after it has kept the call to `answer` it later.
    """

    __slots__ = ("broker", "header", "reply", "response_type", "version")

    def __init__(
        self, broker: "Broker", reply: Reply, response_type: type[Any], version: int, header: RequestHeader
    ) -> None:
        self.broker = broker
        self.reply = reply
        self.response_type = response_type
        self.version = version
        self.header = header

    @property
    def connection(self) -> Connection:
        return self.reply.connection

    def answer(self, response: Any) -> None:
        """Send the response; once per call. A connection that is gone by now is no error.

        A response that cannot be encoded closes the connection, for nobody else would answer a call that was kept;
        what the encoder raised is raised then.
        """
        try:
            header = response_header(self.response_type, self.version, self.header.correlation_id)
            self.reply.send(encode_parts(response, self.version, header))
        except Exception:
            self.reply.close("internal error: the answer cannot be encoded")
            raise

    def no_answer(self) -> None:
        """This request gets no answer (Produce with acks=0)."""
        self.reply.skip()

    def close(self, reason: str) -> None:
        """Close the connection after the earlier answers have left."""
        self.reply.close(reason)
