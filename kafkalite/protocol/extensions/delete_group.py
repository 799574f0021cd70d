"""DeleteGroup, key 10002, v0. Deletes groups without members; served by their coordinator."""

from kafkalite.protocol.schema import Request, Response, Struct, int16, string


class DeleteGroupRequest(Request, key=10002, versions=(0, 0), flexible=0):
    """Groups by name.

    Attributes:
        groups: the names.
    """

    groups: list[string]


class DeleteGroupResponse(Response, key=10002, versions=(0, 0), flexible=0):
    """The result for each group.

    Attributes:
        results: one entry for each group.
    """

    class DeletedGroup(Struct):
        """One group.

        Attributes:
            group_id: the group.
            error_code: the error, 0 = none.
        """

        group_id: string
        error_code: int16 = 0

    results: list[DeletedGroup]
