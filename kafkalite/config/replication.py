"""The replication of a cluster that was given no configs for it: `kafkalite cluster up`, clusters of tests."""

FACTOR_MAX = 3


def replication_settings(brokers: int) -> dict[str, str]:
    """Return configs with which the records of topics survive the loss of a broker, where there are three of them.

    Arguments:
        brokers: their number in the cluster.
    """
    factor = min(FACTOR_MAX, brokers)
    return {
        "default.replication.factor": str(factor),
        "offsets.topic.replication.factor": str(factor),
        "min.insync.replicas": "2" if factor == FACTOR_MAX else "1",
    }
