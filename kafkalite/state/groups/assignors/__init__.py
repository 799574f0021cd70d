"""Who owns which partitions: the assignors by name. `uniform` and `range` are Kafka's for consumer groups (KIP-848);
`roundrobin` and `sticky` besides serve kafkalite's own group protocol."""

from kafkalite.state.groups.assignors import ranges, roundrobin, sticky, uniform
from kafkalite.state.groups.assignors.spec import Assignment, Assignor, Members, MemberSpec, Topics

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "Members", "Topics"]

ASSIGNORS: dict[str, Assignor] = {
    "uniform": uniform.assign,
    "range": ranges.assign,
    "roundrobin": roundrobin.assign,
    "sticky": sticky.assign,
}
