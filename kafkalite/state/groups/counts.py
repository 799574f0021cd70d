"""What the groups of a broker did since it started, in plain numbers."""

__all__ = ["GroupCounts"]


class GroupCounts:
    """One object for all shards and all lives of their machines; what is read from a log is not counted.

    Attributes:
        rebalances: classic generations that got an assignment, epochs of consumer groups, and generations of
            registered groups.
        commits: committed offsets, each partition by itself.
    """

    __slots__ = ("commits", "rebalances")

    def __init__(self) -> None:
        self.commits = 0
        self.rebalances = 0
