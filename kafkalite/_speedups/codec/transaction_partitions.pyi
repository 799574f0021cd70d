def encode_partitions(partitions: frozenset[tuple[str, int]], flexible: bool) -> bytes:
    """The topics and partitions of a transaction, each in order, as an array of TransactionLogValue.

    Arguments:
        partitions: topics and partition indexes.
        flexible: whether the version of the value is flexible.

    Raises: ValueError for a negative partition or a name that is too long for a string, OverflowError for a partition
    that is no int32, TypeError for anything else.
    """
