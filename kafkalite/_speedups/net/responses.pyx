"""Replies: the service completes them at any time and in any order; they are sent in the order of the requests."""

cimport cython
from cpython.bytes cimport PyBytes_CheckExact, PyBytes_GET_SIZE

from kafkalite._speedups.storage.file cimport FileRegion
from kafkalite._speedups.net.loop cimport ConnectionBase


cdef class RespondingConnection(ConnectionBase):
    """Counters of a connection: unanswered requests and unsent responses."""

    cdef bint is_serving(self) noexcept:
        return self.pending > 0


@cython.final
@cython.freelist(1024)
cdef class Reply:
    """The response to one request frame; created by the connection, completed once by the service."""

    def __cinit__(self, RespondingConnection connection not None):
        self.connection = connection

    @property
    def done(self):
        """Whether the request is answered or the connection closed."""
        return self.answered or self.connection.closed

    @property
    def on_gone(self):
        return self.gone

    @on_gone.setter
    def on_gone(self, callback):
        if callback is not None and not self.answered and self.connection.finalized:
            self.connection.hub.orphans.append(callback)
            self.connection.hub.schedule()
        else:
            self.gone = callback

    @property
    def in_progress(self):
        """Whether the service computes the response in several loop iterations, without waiting for an event.

        A connection whose peer has closed its side stays open until then.
        """
        return self.in_work

    @in_progress.setter
    def in_progress(self, bint in_progress):
        self.in_work = in_progress
        if not in_progress and not self.answered and not self.connection.closed:
            self.connection.hub.note(self.connection)  # a delayed request may close it (framing, rule 7)

    cpdef send(self, parts):
        """Send a response.

        Arguments:
            parts: bytes, or a list of bytes-like objects and FileRegions, without the size of the frame. Bytes-like
                objects other than bytes are copied.

        Ignored if the connection is closed. Raises: RuntimeError if this request is already answered.
        """
        cdef Py_ssize_t size = 0
        cdef list checked
        if self.connection.closed:
            return
        if self.answered:
            raise RuntimeError("this request is already answered")
        if PyBytes_CheckExact(parts):
            size = PyBytes_GET_SIZE(parts)
        else:
            checked = []
            for part in parts if isinstance(parts, list) else (parts,):
                if PyBytes_CheckExact(part):
                    size += PyBytes_GET_SIZE(part)
                elif type(part) is FileRegion:
                    size += <Py_ssize_t> (<FileRegion> part).length
                else:
                    part = bytes(part)
                    size += len(part)
                checked.append(part)
            parts = checked
        if size > 0x7fffffff:
            raise ValueError(f"a response of {size} bytes does not fit into a frame")
        self.parts = parts
        self.finish(size + SIZE_BYTES)

    cpdef skip(self):
        """Send nothing for this request (acks=0)."""
        if self.connection.closed:
            return
        if self.answered:
            raise RuntimeError("this request is already answered")
        self.finish(0)

    cpdef close(self, str reason):
        """Close the connection after the responses to earlier requests are sent; `reason` is logged."""
        if self.connection.closed or self.answered:
            return
        self.closes = True
        if self.connection.reason is None:
            self.connection.reason = reason
        self.finish(0)

    cpdef pause(self):
        """Parse no further request of this connection until `resume`; calls nest.

        Called while this request is received, its frame counts as request memory until `resume`.
        """
        self.connection.paused += 1

    cpdef resume(self, bint pinned):
        """Continue with the next requests. `pinned`: this frame counts as request memory until it is answered."""
        cdef RespondingConnection connection = self.connection
        connection.paused -= 1
        if self.pins and not pinned and not self.answered and not connection.closed:
            self.unpin()
        connection.hub.note(connection)

    cpdef release_frame(self):
        """The frame is not used any more: from now on it does not count as request memory."""
        if self.answered or self.connection.closed:
            return
        self.released = True
        if self.pins:
            self.unpin()
            self.connection.hub.note(self.connection)

    cdef int unpin(self) except -1:
        self.pins = False
        self.connection.pinned_bytes -= self.request_size
        return self.connection.hub.memory.unpin(self)

    cdef int finish(self, Py_ssize_t size) except -1:
        cdef RespondingConnection connection = self.connection
        self.answered = True
        self.gone = None
        self.size = size
        connection.unsent += size
        connection.requests_bytes -= self.request_size
        if self.pins:
            self.unpin()
        connection.pending -= 1
        connection.hub.note(connection)
        return 0
