"""Counters of the groups of a broker since its start."""


class GroupCounts:
    """One object for all shards and incarnations of their machines; replayed records are not counted.

    Attributes:
        rebalances: classic generations that got an assignment, epochs of consumer groups, and generations of
            registered groups.
        commits: committed offsets; each partition counts.
    """

    __slots__ = ("commits", "rebalances")

    def __init__(self) -> None:
        self.commits = 0
        self.rebalances = 0
