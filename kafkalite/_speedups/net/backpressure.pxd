"""Backpressure: decides when a connection receives and parses nothing, so that its client has to wait.

1. Above `unsent_bytes_max`, `open_replies_max` or `requests_bytes_max` nothing is received or parsed.
2. Before authentication one request at a time is served.
3. Behind a request that is served in slices no other one is parsed: its response would be built beside the first one,
   which is sent before it.
4. Nothing is received without memory for it (`request_memory`), until the peer has closed its side: the socket buffer
   bounds the remaining bytes then.
"""

from kafkalite._speedups.net.loop cimport Limits
from kafkalite._speedups.net.responses cimport RespondingConnection


cdef inline bint exceeds_limits(RespondingConnection connection, int open_replies, bint authenticated) noexcept:
    """Whether no further request may be received or parsed (rules 1 to 3)."""
    cdef Limits limits = connection.hub.limits
    if connection.unsent > limits.unsent_bytes_max or open_replies >= limits.open_replies_max:
        return True
    # The service may keep a copy of each open request; without open requests, a request of any size is received.
    if connection.requests_bytes >= limits.requests_bytes_max or connection.paused:
        return True
    return connection.pending > 0 and not authenticated


cdef inline bint has_memory(RespondingConnection connection, bint hung_up) noexcept:
    """Whether there is memory for more bytes (rule 4)."""
    return hung_up or connection.hub.memory.allows(connection)
