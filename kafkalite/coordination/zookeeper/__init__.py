"""A session with ZooKeeper, or with a server of its protocol, as an implementation of `coordination.backend`.

The wire format is in `codec`, `records` and `protocol`; a server of the protocol uses them, too. The client is
`connection` and `session`. Of the library aiozk, only the declarations of the protocol's records are used.
"""
