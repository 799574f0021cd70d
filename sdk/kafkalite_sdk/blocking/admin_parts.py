"""The parts of a blocking `Admin`: each method waits for the method of the same name in `kafkalite_sdk.admin`."""

from kafkalite_sdk.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    partitions,
    quotas,
    topics,
    transactions,
    users,
)
from kafkalite_sdk.blocking.derived import Blocking, Part


class Topics(Part[topics.Topics]):
    """List, describe, create and delete topics, add partitions."""

    list = Blocking(topics.Topics.list)
    describe = Blocking(topics.Topics.describe)
    create = Blocking(topics.Topics.create)
    delete = Blocking(topics.Topics.delete)
    create_partitions = Blocking(topics.Topics.create_partitions)


class Partitions(Part[partitions.Partitions]):
    """Offsets, deletion of records, producers, leader elections and reassignments."""

    offsets = Blocking(partitions.Partitions.offsets)
    segments = Blocking(partitions.Partitions.segments)
    delete_records = Blocking(partitions.Partitions.delete_records)
    producers = Blocking(partitions.Partitions.producers)
    elect_leaders = Blocking(partitions.Partitions.elect_leaders)
    reassign = Blocking(partitions.Partitions.reassign)
    reassignments = Blocking(partitions.Partitions.reassignments)


class Configs(Part[configs.Configs]):
    """Describe and change configs of topics, brokers and groups."""

    describe = Blocking(configs.Configs.describe)
    alter = Blocking(configs.Configs.alter)
    resources = Blocking(configs.Configs.resources)


class Cluster(Part[cluster.Cluster]):
    """Brokers, log directories and features."""

    describe = Blocking(cluster.Cluster.describe)
    log_directories = Blocking(cluster.Cluster.log_directories)
    coordination = Blocking(cluster.Cluster.coordination)
    move_replicas = Blocking(cluster.Cluster.move_replicas)
    features = Blocking(cluster.Cluster.features)
    update_features = Blocking(cluster.Cluster.update_features)


class Groups(Part[groups.Groups]):
    """List, describe, create and delete groups, remove members."""

    list = Blocking(groups.Groups.list)
    list_by_broker = Blocking(groups.Groups.list_by_broker)
    describe = Blocking(groups.Groups.describe)
    lag = Blocking(groups.Groups.lag)
    create = Blocking(groups.Groups.create)
    delete = Blocking(groups.Groups.delete)
    remove_members = Blocking(groups.Groups.remove_members)


class GroupOffsets(Part[group_offsets.GroupOffsets]):
    """Read, set, rewind and delete the committed offsets of groups."""

    list = Blocking(group_offsets.GroupOffsets.list)
    alter = Blocking(group_offsets.GroupOffsets.alter)
    delete = Blocking(group_offsets.GroupOffsets.delete)
    rewind = Blocking(group_offsets.GroupOffsets.rewind)
    rewind_to_times = Blocking(group_offsets.GroupOffsets.rewind_to_times)


class Acls(Part[acls.Acls]):
    """List, create and delete ACLs."""

    list = Blocking(acls.Acls.list)
    create = Blocking(acls.Acls.create)
    delete = Blocking(acls.Acls.delete)


class Quotas(Part[quotas.Quotas]):
    """Describe and change client quotas."""

    describe = Blocking(quotas.Quotas.describe)
    alter = Blocking(quotas.Quotas.alter)


class Users(Part[users.Users]):
    """Describe, set and delete the SCRAM credentials of users."""

    describe = Blocking(users.Users.describe)
    alter = Blocking(users.Users.alter)


class Transactions(Part[transactions.Transactions]):
    """List and describe transactions."""

    list = Blocking(transactions.Transactions.list)
    describe = Blocking(transactions.Transactions.describe)
