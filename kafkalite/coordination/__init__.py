"""Where the cluster keeps what all brokers must agree on: ZooKeeper's tree of nodes, with Kafka's nodes in it.

`tree` is the pure tree; `embedded` puts it into this process with a journal file; `layout` knows Kafka's paths and
texts. `backend` is the interface that every backend offers and says what a user of it may rely on.
"""
