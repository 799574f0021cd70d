def encode_partitions(by_topic: dict[str, frozenset[int]], flexible: bool) -> bytes:
    """The topics and partitions of a transaction, each in order, as an array of TransactionLogValue.

    Arguments:
        by_topic: the partition indexes of each topic.
        flexible: whether the version of the value is flexible.

    Raises: ValueError for a negative partition or a name that is too long for a string, OverflowError for a partition
    that is no int32, TypeError for anything else.
    """
