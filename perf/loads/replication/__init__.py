"""Three brokers and topics with three replicas: rest, catch-up of a follower, a dead leader, a controlled shutdown."""

from perf.loads.replication import availability, catch_up

LOADS = (*availability.LOADS, *catch_up.LOADS)
