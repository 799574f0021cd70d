"""The client half of a connection: a core without I/O (`core`), and its asyncio driver (`connection`)."""

from kafkalite.net.client.connection import ClientConnection as ClientConnection
