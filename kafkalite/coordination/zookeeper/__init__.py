"""Sessions with Apache ZooKeeper, or any server of its protocol.

    session = connect_zookeeper(
        "zk1:2181,zk2:2181/kafka", timeout_ms=18_000, then=connected,       # connected(Outcome(session))
        dial=dial, clock=clock, random=random,
        on_lost=on_lost, on_suspended=on_suspended, on_resumed=on_resumed,
        access=ANONYMOUS, key=NEW_SESSION,                 # Access(tls, digest, acl); SessionKey(session_id, password)
    )

`session` has the interface of `backend.Coordination`, and `key`, the id and password with which a later process
continues the session, to close it. aiozk declares the protocol's records; `codec` compiles them to encoders and
decoders, `protocol` has the frames and `records` our NamedTuples. `core` is the client half of a session without I/O,
`session` its driver on asyncio.
"""
