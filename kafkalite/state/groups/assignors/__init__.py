"""The partition assignors by name: `uniform` and `range` for consumer groups (KIP-848), as in Kafka; registered groups
also use `roundrobin` and `sticky`.
"""

from kafkalite.state.groups.assignors import ranges, roundrobin, sticky, uniform
from kafkalite.state.groups.assignors.spec import Assignment, Assignor, Members, MemberSpec, Topics

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "MemberSpec", "Members", "Topics"]

ASSIGNORS: dict[str, Assignor] = {
    "uniform": uniform.assign,
    "range": ranges.assign,
    "roundrobin": roundrobin.assign,
    "sticky": sticky.assign,
}
