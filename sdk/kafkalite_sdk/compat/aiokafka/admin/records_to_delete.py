"""aiokafka's records to delete."""


class RecordsToDelete:
    """The records of a partition before an offset.

    Arguments:
        before_offset: the new first offset; -1 = the high watermark.
    """

    def __init__(self, before_offset: int) -> None:
        self.before_offset = before_offset
