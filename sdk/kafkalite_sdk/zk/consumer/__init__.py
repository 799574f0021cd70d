"""The consumer of the ZooKeeper era: `connector` is what an application uses, `member_driver` executes what the machine
of `zk.membership` decides, `broker_clients` fetches, `streams` return the records.
"""
