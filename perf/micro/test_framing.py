"""The pipeline in memory, without sockets: cost of a request for parsing, the service's call and its ordered answer."""

import pytest

from kafkalite._speedups.net.framing import Connection, Hub, Limits

REQUESTS = 1000
ANSWER = bytes(64)
NO_BUDGET = Limits(connection_budget_ns=1 << 60, iteration_budget_ns=1 << 60)


class Nowhere(Connection):
    """Everything sent is taken at once."""

    def transmit(self):
        self.advance(0)
        self.advance(self.unsent)


class Unscheduled(Hub):
    def wake(self):
        raise AssertionError("every reply is completed inside its pass")


class Answering:
    def connected(self, connection):
        return True

    def disconnected(self, connection):
        pass

    def write_pending(self):
        pass

    def request(self, reply, frame):
        reply.send(ANSWER)


@pytest.mark.parametrize("size", [100, 1024, 16_384])
@pytest.mark.benchmark(group="framing: 1,000 requests")
def test_requests_in_memory(benchmark, size):
    hub = Unscheduled(Answering(), NO_BUDGET)
    connection = Nowhere(hub)
    stream = (size.to_bytes(4, "big") + bytes(size)) * REQUESTS

    def one_pass():
        hub.begin()
        taken = connection.feed(stream)
        hub.end()
        return taken

    assert benchmark(one_pass) == len(stream)
    assert hub.requests % REQUESTS == 0 and connection.open_replies == 0
