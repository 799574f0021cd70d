"""Keys of the broker itself: identity, network, directories, topics, fetching (SocketServerConfigs, ServerLogConfigs,
ServerConfigs, ReplicationConfigs of Kafka)."""

from kafkalite.config.keys import INT_MAX, LONG_MAX, Key, Standing, Type, Update

BOOLEAN, STRING, INT, LONG, DOUBLE, LIST, CLASS = (
    Type.BOOLEAN,
    Type.STRING,
    Type.INT,
    Type.LONG,
    Type.DOUBLE,
    Type.LIST,
    Type.CLASS,
)
IDLE, REFUSED = Standing.WITHOUT_EFFECT, Standing.REFUSED
PER_BROKER, CLUSTER_WIDE = Update.PER_BROKER, Update.CLUSTER_WIDE
PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"

IDENTITY = (
    Key("broker.id", INT, -1, "The number of this broker; -1: the one its log directories carry, or a new one."),
    Key("node.id", INT, -1, "Another name of broker.id.", low=-1),
    Key("broker.rack", STRING, None, "Where this broker stands; replicas are spread over racks."),
    Key("process.roles", LIST, (), "Roles of a KRaft process.", allowed=("broker", "controller"), standing=IDLE),
    Key("broker.id.generation.enable", BOOLEAN, True, "Number brokers that have no broker.id.", standing=IDLE),
    Key("reserved.broker.max.id", INT, 1000, "Generated numbers are above this one.", low=0, standing=IDLE),
    Key("controller.listener.names", STRING, None, "Listeners of a KRaft controller.", standing=IDLE),
    Key("controller.quorum.voters", LIST, (), "Members of a KRaft quorum.", standing=REFUSED),
    Key("controller.quorum.bootstrap.servers", LIST, (), "Where a KRaft quorum is found.", standing=REFUSED),
    Key("metadata.log.dir", STRING, None, "Directory of KRaft's metadata log.", standing=IDLE),
)

NETWORK = (
    Key("listeners", LIST, ("PLAINTEXT://:9092",), "Where connections are taken: NAME://HOST:PORT, comma-separated."),
    Key("advertised.listeners", LIST, None, "Where clients are told to connect; unset: where they reached us."),
    Key("listener.security.protocol.map", LIST, tuple(PROTOCOL_MAP.split(",")), "Which protocol each listener speaks."),
    Key("inter.broker.listener.name", STRING, None, "The listener that other brokers use.", standing=IDLE),
    Key("security.inter.broker.protocol", STRING, "PLAINTEXT", "The protocol that other brokers speak.",
        allowed=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), standing=REFUSED),
    Key("control.plane.listener.name", STRING, None, "A listener for the controller alone.", standing=IDLE),
    Key("num.network.threads", INT, 3, "Threads that talk to clients; here one loop does.", low=1, standing=IDLE),
    Key("num.io.threads", INT, 8, "Threads that serve requests; here one loop does.", low=1, standing=IDLE),
    Key("background.threads", INT, 10, "Threads for background work.", low=1, standing=IDLE),
    Key("queued.max.requests", INT, 500, "Requests that wait for a thread.", low=1, standing=IDLE),
    Key("queued.max.request.bytes", LONG, -1, "Bytes of requests under way, above which no connection is read;"
        " -1: an eighth of the memory (Kafka: no limit)."),
    Key("socket.request.max.bytes", INT, 104_857_600, "The largest request taken.", low=1),
    Key("socket.send.buffer.bytes", INT, -1, "The system's send buffer; -1: it tunes it itself (Kafka: 102400).",
        low=-1),
    Key("socket.receive.buffer.bytes", INT, -1, "The system's receive buffer; -1: it tunes it itself (Kafka: 102400).",
        low=-1),
    Key("socket.listen.backlog.size", INT, 1024, "Connections the system holds until they are taken (Kafka: 50).",
        low=1),
    Key("max.connections", INT, INT_MAX, "Connections in all; beyond it none is taken.", low=0, update=CLUSTER_WIDE),
    Key("max.connections.per.ip", INT, INT_MAX, "Connections of one address.", low=0, update=CLUSTER_WIDE),
    Key("max.connections.per.ip.overrides", STRING, "", "Limits of single addresses: HOST:COUNT, comma-separated."),
    Key("max.connection.creation.rate", INT, INT_MAX, "New connections per second.", low=0, standing=IDLE),
    Key("connections.max.idle.ms", LONG, 600_000, "After how long a silent connection is closed.", low=-1),
    Key("connection.failed.authentication.delay.ms", INT, 100, "How late a failed login is told.", low=0,
        standing=IDLE),
    Key("request.timeout.ms", INT, 30_000, "How long a request of this broker may take.", low=1, standing=IDLE),
)  # fmt: skip

LOG = (
    Key("log.dir", STRING, "/tmp/kafka-logs", "The log directory, when log.dirs is unset."),
    Key("log.dirs", LIST, None, "The log directories, comma-separated."),
    Key("cordoned.log.dirs", LIST, (), "Log directories that get no new partitions.", standing=IDLE),
    Key("num.partitions", INT, 1, "Partitions of a topic that asks for no number.", low=1),
    Key("default.replication.factor", INT, 1, "Replicas of a topic that asks for no number.", low=1),
    Key("auto.create.topics.enable", BOOLEAN, True, "Create topics that clients ask for."),
    Key("delete.topic.enable", BOOLEAN, True, "Let topics be deleted."),
    Key("create.topic.policy.class.name", CLASS, None, "A Java class that may refuse topics.", standing=REFUSED),
    Key("alter.config.policy.class.name", CLASS, None, "A Java class that may refuse configs.", standing=REFUSED),
    Key("log.retention.check.interval.ms", LONG, 300_000, "How often is looked for segments to delete.", low=1),
    Key("kafkalite.retention.clock.jump.pause.ms", LONG, 3_600_000,
        "How long nothing is deleted for its age after the wall clock jumped by more than 10 minutes.", low=0),
    Key("log.initial.task.delay.ms", LONG, 30_000, "How long after the start the first look is.", low=0),
    Key("log.flush.offset.checkpoint.interval.ms", INT, 60_000, "How often recovery points are written.", low=0),
    Key("log.flush.start.offset.checkpoint.interval.ms", INT, 60_000, "How often log starts are written.", low=0),
    Key("num.recovery.threads.per.data.dir", INT, 2, "Threads that recover the logs of each directory.", low=1),
    Key("log.dir.failure.timeout.ms", LONG, 30_000, "How long a broker stays that cannot report a failed directory.",
        low=1, standing=IDLE),
    Key("log.cleaner.enable", BOOLEAN, True, "Run the cleaner."),
    Key("log.cleaner.threads", INT, 1, "Threads of the cleaner.", low=0),
    Key("log.cleaner.dedupe.buffer.size", LONG, 134_217_728, "Memory for the cleaner's map."),
    Key("log.cleaner.io.buffer.size", INT, 524_288, "Memory for the cleaner's reads.", low=0),
    Key("log.cleaner.io.buffer.load.factor", DOUBLE, 0.9, "How full the cleaner's map may get."),
    Key("log.cleaner.backoff.ms", LONG, 15_000, "How long the cleaner sleeps when all is clean.", low=0),
    Key("log.cleaner.io.max.bytes.per.second", DOUBLE, 1.7976931348623157e308, "How fast the cleaner works."),
    Key("producer.id.expiration.ms", INT, 86_400_000, "After how long a silent producer is forgotten.", low=1,
        update=CLUSTER_WIDE),
    Key("producer.id.expiration.check.interval.ms", INT, 600_000, "How often is looked for those.", low=1),
)  # fmt: skip

FETCH = (
    Key("fetch.max.bytes", INT, 57_671_680, "The largest answer to a fetch.", low=1024),
    Key("max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions kept.", low=0),
    Key("max.request.partition.size.limit", INT, 2000, "Partitions in one answer to DescribeTopicPartitions.", low=1),
    Key("fetch.purgatory.purge.interval.requests", INT, 1000, "Housekeeping of waiting fetches.", standing=IDLE),
    Key("producer.purgatory.purge.interval.requests", INT, 1000, "Housekeeping of waiting produces.", standing=IDLE),
    Key(
        "delete.records.purgatory.purge.interval.requests", INT, 1, "Housekeeping of waiting deletions.", standing=IDLE
    ),
)

REPLICATION = (
    Key("replica.lag.time.max.ms", LONG, 30_000, "After how long a follower that lags is out of sync.", standing=IDLE),
    Key("replica.fetch.max.bytes", INT, 1_048_576, "Bytes a follower asks for per partition.", low=0, standing=IDLE),
    Key("replica.fetch.min.bytes", INT, 1, "Bytes a follower waits for.", standing=IDLE),
    Key("replica.fetch.wait.max.ms", INT, 500, "How long a follower waits for them.", standing=IDLE),
    Key("replica.fetch.backoff.ms", INT, 1000, "How long a follower rests after an error.", low=0, standing=IDLE),
    Key("replica.fetch.response.max.bytes", INT, 10_485_760, "Bytes a follower asks for.", low=0, standing=IDLE),
    Key("num.replica.fetchers", INT, 1, "Connections per leader.", standing=IDLE),
    Key("replica.socket.timeout.ms", INT, 30_000, "How long a follower waits for an answer.", standing=IDLE),
    Key("replica.socket.receive.buffer.bytes", INT, 65_536, "The follower's receive buffer.", standing=IDLE),
    Key("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, "How often high watermarks are written.",
        standing=IDLE),
    Key("replica.selector.class", CLASS, None, "Which replica serves a consumer.", standing=IDLE),
    Key("auto.leader.rebalance.enable", BOOLEAN, True, "Lead back to preferred replicas.", standing=IDLE),
    Key("leader.imbalance.check.interval.seconds", LONG, 300, "How often that is looked at.", low=1, standing=IDLE),
    Key("leader.imbalance.per.broker.percentage", INT, 10, "How much imbalance is borne.", standing=IDLE),
    Key("unclean.leader.election.interval.ms", LONG, 300_000, "How often unclean elections are tried.", standing=IDLE),
    Key("controller.socket.timeout.ms", INT, 30_000, "How long the controller waits for a broker.", standing=IDLE),
    Key("controlled.shutdown.enable", BOOLEAN, True, "Hand leadership over before the end.", standing=IDLE),
    Key("controlled.shutdown.max.retries", INT, 3, "How often that is tried.", standing=IDLE),
    Key("controlled.shutdown.retry.backoff.ms", LONG, 5000, "How long between tries.", standing=IDLE),
    Key("broker.heartbeat.interval.ms", INT, 2000, "Heartbeats of a KRaft broker.", standing=IDLE),
    Key("broker.session.timeout.ms", INT, 9000, "Session of a KRaft broker.", standing=IDLE),
    Key("zookeeper.connect", STRING, None, "The ZooKeeper servers of a cluster.", standing=REFUSED),
    Key("zookeeper.session.timeout.ms", INT, 18_000, "Session with ZooKeeper.", standing=IDLE),
    Key("zookeeper.connection.timeout.ms", INT, None, "How long a connection to ZooKeeper may take.", standing=IDLE),
    Key("zookeeper.max.in.flight.requests", INT, 10, "Requests on their way to ZooKeeper.", low=1, standing=IDLE),
    Key("zookeeper.set.acl", BOOLEAN, False, "Protect the nodes in ZooKeeper.", standing=REFUSED),
    Key("zookeeper.ssl.client.enable", BOOLEAN, False, "Speak TLS with ZooKeeper.", standing=REFUSED),
)  # fmt: skip

QUOTAS = (
    Key("quota.window.num", INT, 11, "Samples kept of each client.", low=1, standing=IDLE),
    Key("quota.window.size.seconds", INT, 1, "Length of a sample.", low=1, standing=IDLE),
    Key("replication.quota.window.num", INT, 11, "Samples kept of replication.", low=1, standing=IDLE),
    Key("replication.quota.window.size.seconds", INT, 1, "Length of a sample.", low=1, standing=IDLE),
    Key("controller.quota.window.num", INT, 11, "Samples kept of changes.", low=1, standing=IDLE),
    Key("controller.quota.window.size.seconds", INT, 1, "Length of a sample.", low=1, standing=IDLE),
    Key("alter.log.dirs.replication.quota.window.num", INT, 11, "Samples kept of moves.", low=1, standing=IDLE),
    Key("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, "Length of a sample.", low=1, standing=IDLE),
    Key("leader.replication.throttled.rate", LONG, LONG_MAX, "Bytes per second served to throttled replicas.", low=0,
        standing=IDLE),
    Key("follower.replication.throttled.rate", LONG, LONG_MAX, "Bytes per second fetched by throttled replicas.", low=0,
        standing=IDLE),
    Key("client.quota.callback.class", CLASS, None, "A Java class that sets quotas.", standing=REFUSED),
    Key("metric.reporters", LIST, (), "Java classes that report metrics.", standing=IDLE),
    Key("metrics.num.samples", INT, 2, "Samples of a metric.", low=1, standing=IDLE),
    Key("metrics.sample.window.ms", LONG, 30_000, "Length of a sample.", low=1, standing=IDLE),
    Key("metrics.recording.level", STRING, "INFO", "How much is measured.", allowed=("INFO", "DEBUG", "TRACE"),
        standing=IDLE),
)  # fmt: skip

SERVER_KEYS = (*IDENTITY, *NETWORK, *LOG, *FETCH, *REPLICATION, *QUOTAS)
