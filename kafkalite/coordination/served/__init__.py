"""Serves the tree over ZooKeeper's wire protocol to the brokers of one machine.

`server` has the sessions, `connection` one client, and `requests` converts between the protocol and the tree. The tree
is a `JournaledTree` with the journal format of served sessions: these outlive the process.
"""
