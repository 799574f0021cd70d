"""The parts of a blocking `Admin`: each method waits for the method of the same name in `kafkalite_sdk.admin`."""

from kafkalite_sdk.admin import (
    acls,
    cluster,
    configs,
    group_offsets,
    groups,
    partitions,
    quotas,
    tokens,
    topics,
    transactions,
    users,
)
from kafkalite_sdk.blocking.derived import Part, wait_for


class Topics(Part[topics.Topics]):
    """List, describe, create and delete topics, add partitions."""

    list = wait_for(topics.Topics.list)
    describe = wait_for(topics.Topics.describe)
    create = wait_for(topics.Topics.create)
    delete = wait_for(topics.Topics.delete)
    create_partitions = wait_for(topics.Topics.create_partitions)


class Partitions(Part[partitions.Partitions]):
    """Offsets, deletion of records, producers, leader elections and reassignments."""

    offsets = wait_for(partitions.Partitions.offsets)
    segments = wait_for(partitions.Partitions.segments)
    delete_records = wait_for(partitions.Partitions.delete_records)
    producers = wait_for(partitions.Partitions.producers)
    elect_leaders = wait_for(partitions.Partitions.elect_leaders)
    reassign = wait_for(partitions.Partitions.reassign)
    reassignments = wait_for(partitions.Partitions.reassignments)


class Configs(Part[configs.Configs]):
    """Describe and change configs of topics, brokers and groups."""

    describe = wait_for(configs.Configs.describe)
    alter = wait_for(configs.Configs.alter)
    resources = wait_for(configs.Configs.resources)


class Cluster(Part[cluster.Cluster]):
    """Brokers, log directories and features."""

    describe = wait_for(cluster.Cluster.describe)
    log_directories = wait_for(cluster.Cluster.log_directories)
    coordination = wait_for(cluster.Cluster.coordination)
    move_replicas = wait_for(cluster.Cluster.move_replicas)
    features = wait_for(cluster.Cluster.features)
    update_features = wait_for(cluster.Cluster.update_features)


class Groups(Part[groups.Groups]):
    """List, describe, create and delete groups, remove members."""

    list = wait_for(groups.Groups.list)
    list_by_broker = wait_for(groups.Groups.list_by_broker)
    describe = wait_for(groups.Groups.describe)
    lag = wait_for(groups.Groups.lag)
    create = wait_for(groups.Groups.create)
    delete = wait_for(groups.Groups.delete)
    remove_members = wait_for(groups.Groups.remove_members)


class GroupOffsets(Part[group_offsets.GroupOffsets]):
    """Read, set, rewind and delete the committed offsets of groups."""

    list = wait_for(group_offsets.GroupOffsets.list)
    alter = wait_for(group_offsets.GroupOffsets.alter)
    delete = wait_for(group_offsets.GroupOffsets.delete)
    rewind = wait_for(group_offsets.GroupOffsets.rewind)
    rewind_to_times = wait_for(group_offsets.GroupOffsets.rewind_to_times)


class Acls(Part[acls.Acls]):
    """List, create and delete ACLs."""

    list = wait_for(acls.Acls.list)
    create = wait_for(acls.Acls.create)
    delete = wait_for(acls.Acls.delete)


class Quotas(Part[quotas.Quotas]):
    """Describe and change client quotas."""

    describe = wait_for(quotas.Quotas.describe)
    alter = wait_for(quotas.Quotas.alter)


class Tokens(Part[tokens.Tokens]):
    """Create, renew, expire and describe delegation tokens."""

    create = wait_for(tokens.Tokens.create)
    renew = wait_for(tokens.Tokens.renew)
    expire = wait_for(tokens.Tokens.expire)
    describe = wait_for(tokens.Tokens.describe)


class Users(Part[users.Users]):
    """Describe, set and delete the SCRAM credentials of users."""

    describe = wait_for(users.Users.describe)
    alter = wait_for(users.Users.alter)


class Transactions(Part[transactions.Transactions]):
    """List, describe and end transactions, find those that hang."""

    list = wait_for(transactions.Transactions.list)
    list_by_broker = wait_for(transactions.Transactions.list_by_broker)
    describe = wait_for(transactions.Transactions.describe)
    describe_producers = wait_for(transactions.Transactions.describe_producers)
    find_open = wait_for(transactions.Transactions.find_open)
    find_hanging = wait_for(transactions.Transactions.find_hanging)
    abort = wait_for(transactions.Transactions.abort)
    end = wait_for(transactions.Transactions.end)
    terminate = wait_for(transactions.Transactions.terminate)
    fence_producers = wait_for(transactions.Transactions.fence_producers)
