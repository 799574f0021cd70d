"""Defines the keys that safety depends on: those of listeners (SslConfigs, SaslConfigs and others, see
`config.security`) and of sessions with ZooKeeper (ZkConfigs, see `config.zookeeper`). Others are refused.

A broker that silently ignored an authorizer, a key store or a remote copy would be worse than one that does not start.
"""

from functools import partial

from kafkalite.config.keys import Key, Support, Type

refused = partial(Key, support=Support.REFUSED)
idle = partial(Key, support=Support.WITHOUT_EFFECT)

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
ENABLE, SET_ACL, DIGEST_FILE = "zookeeper.ssl.client.enable", "zookeeper.set.acl", "kafkalite.zookeeper.digest.file"
TRUST_STORE, KEY_STORE = "zookeeper.ssl.truststore", "zookeeper.ssl.keystore"
HOST_NAMES = "zookeeper.ssl.endpoint.identification.algorithm"

ENCODER_SECRET = "password.encoder.secret"
CBC, GCM = "AES/CBC/PKCS5Padding", "AES/GCM/NoPadding"
KEY_FACTORIES = tuple(f"PBKDF2WithHmacSHA{size}" for size in ("512", "384", "256", "224", "1"))
KEY_LENGTHS = (128, 192, 256)

SECURITY_KEYS = (
    Key("authorizer.class.name", Type.STRING, "",
        "Authorizer of all requests: kafka.security.authorizer.AclAuthorizer or "
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer, whose rules are built in, or an entry point of the "
        "group kafkalite.authorizers. Empty = every request is allowed."),
    Key("super.users", Type.STRING, "",
        "Principals that may perform every operation, such as User:alice;User:bob."),
    Key("allow.everyone.if.no.acl.found", Type.BOOLEAN, False,
        "Whether the authorizer allows access to resources without any ACL."),
    Key("principal.builder.class", Type.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "What builds the principals of connections: Kafka's default class, whose rules are built in, or an entry point "
        "of the group kafkalite.principal_builders."),
    Key("sasl.enabled.mechanisms", Type.LIST, ("GSSAPI",),
        "SASL mechanisms that are enabled; further ones are entry points of the group kafkalite.sasl_mechanisms."),
    Key("sasl.mechanism.inter.broker.protocol", Type.STRING, "GSSAPI",
        "SASL mechanism of connections between brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."),
    refused("sasl.jaas.config", Type.PASSWORD, None, "JAAS configuration of a SASL mechanism."),
    refused("sasl.server.callback.handler.class", Type.CLASS, None,
            "What verifies the credentials of a mechanism: an entry point of the group kafkalite.sasl_callbacks, or "
            "the class of Kafka whose rules are built in."),
    Key("sasl.server.max.receive.size", Type.INT, 524_288,
        "Maximum size of a request before the SASL authentication has ended, in bytes.", low=1),
    Key("connections.max.reauth.ms", Type.LONG, 0,
        "Time after which a client must authenticate again, in ms; 0: never.", low=0),
    Key("ssl.client.auth", Type.STRING, "none", "Whether clients must present a certificate.",
        allowed=("required", "requested", "none")),
    Key("ssl.keystore.location", Type.STRING, None, "Path of the key store (the broker's key and certificate)."),
    Key("ssl.keystore.password", Type.PASSWORD, None, "Password of the key store."),
    Key("ssl.keystore.key", Type.PASSWORD, None, "Private key of the broker, in PEM format."),
    Key("ssl.keystore.certificate.chain", Type.PASSWORD, None, "Certificate chain of the broker, in PEM format."),
    Key("ssl.key.password", Type.PASSWORD, None, "Password of the private key."),
    Key("ssl.truststore.location", Type.STRING, None, "Path of the trust store (certificates the broker trusts)."),
    Key("ssl.truststore.password", Type.PASSWORD, None, "Password of the trust store."),
    Key("ssl.truststore.certificates", Type.PASSWORD, None, "Certificates the broker trusts, in PEM format."),
    Key("ssl.keystore.type", Type.STRING, "JKS", "Format of the key store."),
    Key("ssl.truststore.type", Type.STRING, "JKS", "Format of the trust store."),
    idle("ssl.protocol", Type.STRING, "TLSv1.3", "TLS version for the SSL context."),
    Key("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), "TLS versions that are enabled.",
        allowed=TLS_VERSIONS),
    Key("ssl.endpoint.identification.algorithm", Type.STRING, "https",
        "Algorithm that verifies the host name of a server."),
    Key("ssl.principal.mapping.rules", Type.STRING, "DEFAULT",
        "Rules that map the name in a certificate to a principal."),
    Key("ssl.cipher.suites", Type.LIST, (), "Cipher suites that are enabled."),
    refused("ssl.engine.factory.class", Type.CLASS, None, "Java class that creates TLS engines."),
    idle("ssl.keymanager.algorithm", Type.STRING, "SunX509", "Algorithm of Java's key manager factory."),
    idle("ssl.provider", Type.STRING, None, "Java security provider for TLS."),
    idle("ssl.secure.random.implementation", Type.STRING, None, "Java's random number generator for TLS."),
    idle("ssl.trustmanager.algorithm", Type.STRING, "PKIX", "Algorithm of Java's trust manager factory."),
    idle("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", "Path of kinit."),
    idle("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000,
         "Minimum time between two refreshes of a Kerberos ticket, in ms."),
    idle("sasl.kerberos.principal.to.local.rules", Type.LIST, ("DEFAULT",),
         "Rules that map Kerberos principals to short names."),
    refused("sasl.kerberos.service.name", Type.STRING, None, "Kerberos principal name of the broker."),
    idle("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05,
         "Random share added to the renewal time of a ticket, from 0 to 1."),
    idle("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8,
         "Share of a ticket's lifetime after which it is renewed, from 0 to 1."),
    refused("sasl.login.callback.handler.class", Type.CLASS, None,
            "Java class that handles callbacks of the broker's own login."),
    refused("sasl.login.class", Type.CLASS, None, "Java class that performs the broker's own login."),
    idle("sasl.login.refresh.buffer.seconds", Type.SHORT, 300,
         "Minimum time between a login refresh and the expiry of the credential, in seconds.", low=0, high=3600),
    idle("sasl.login.refresh.min.period.seconds", Type.SHORT, 60,
         "Minimum time between two login refreshes, in seconds.", low=0, high=900),
    idle("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8,
         "Share of a credential's lifetime after which the login is refreshed.", low=0.5, high=1),
    idle("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, "Random share added to the login refresh time.", low=0,
         high=0.25),
    Key("sasl.oauthbearer.jwks.endpoint.url", Type.STRING, None,
        "Where the public keys are that verify tokens of OAUTHBEARER (a JSON Web Key Set): an https or file URL."),
    Key("sasl.oauthbearer.jwks.endpoint.refresh.ms", Type.LONG, 3_600_000,
        "Time between two reads of the keys, in ms.", low=1),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", Type.LONG, 100,
        "Time before a failed read of the keys is repeated, in ms; it doubles with each failure.", low=1),
    Key("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", Type.LONG, 10_000,
        "The longest time before a failed read of the keys is repeated, in ms.", low=1),
    Key("sasl.oauthbearer.expected.audience", Type.LIST, None,
        "Names of this cluster: the claim aud of a token must have one of them."),
    Key("sasl.oauthbearer.expected.issuer", Type.STRING, None, "The claim iss that tokens must have."),
    Key("sasl.oauthbearer.clock.skew.seconds", Type.INT, 30,
        "Permitted difference between the clocks of the issuer of a token and the broker, in seconds.", low=0),
    Key("sasl.oauthbearer.scope.claim.name", Type.STRING, "scope", "Name of the claim with the scopes of a token."),
    Key("sasl.oauthbearer.sub.claim.name", Type.STRING, "sub",
        "Name of the claim that becomes the name of the principal."),
    Key("kafkalite.sasl.oauthbearer.allowed.urls", Type.LIST, (),
        "URLs that sasl.oauthbearer.jwks.endpoint.url may have; Kafka has a system property for it, "
        "org.apache.kafka.sasl.oauthbearer.allowed.urls."),
    Key("kafkalite.sasl.oauthbearer.allowed.files", Type.LIST, (),
        "Paths of files that sasl.oauthbearer.jwks.endpoint.url may name; Kafka's system property is "
        "org.apache.kafka.sasl.oauthbearer.allowed.files."),
    Key("delegation.token.secret.key", Type.PASSWORD, None,
        "Secret key that signs delegation tokens, the same on all brokers; unset: tokens are disabled."),
    Key("delegation.token.master.key", Type.PASSWORD, None,
        "The former name of delegation.token.secret.key, which precedes it."),
    Key("delegation.token.max.lifetime.ms", Type.LONG, 604_800_000, "Maximum lifetime of a delegation token, in ms.",
        low=1),
    Key("delegation.token.expiry.time.ms", Type.LONG, 86_400_000,
        "Lifetime of a delegation token between renewals, in ms.", low=1),
    Key("delegation.token.expiry.check.interval.ms", Type.LONG, 3_600_000,
        "Time between two removals of expired delegation tokens, in ms.", low=1),
    Key("kafkalite.delegation.token.max.per.owner", Type.INT, 10_000,
        "Maximum number of delegation tokens of one owner, in Kafka there is none.", low=1),
    Key("kafkalite.principal.max.connections", Type.INT, 0,
        "Maximum number of connections of one principal; 0 = no limit. Further ones are closed.", low=0),
    Key("kafkalite.principal.max.fetch.sessions", Type.INT, 0,
        "Maximum number of fetch sessions of one principal; 0 = no limit. Further fetches have no session.", low=0),
    Key("kafkalite.principal.max.groups", Type.INT, 0,
        "Maximum number of groups that one principal has created at their coordinator since its start; 0 = no limit.",
        low=0),
    Key("kafkalite.principal.max.transactional.ids", Type.INT, 0,
        "Maximum number of transactional ids that one principal has created at their coordinator since its start; "
        "0 = no limit.", low=0),
    Key("kafkalite.principal.max.producer.ids", Type.INT, 0,
        "Maximum number of producer ids that one principal gets within producer.id.expiration.ms; 0 = no limit.",
        low=0),
    Key("kafkalite.principal.max.queued.request.bytes", Type.LONG, 0,
        "Share of one principal in the memory for requests in flight (queued.max.request.bytes), in bytes; above it "
        "its connections are not read, each may always hold 4 KiB; 0 = no limit.", low=0),
    Key(ENCODER_SECRET, Type.PASSWORD, None,
        "Secret that encrypts the passwords among the dynamic configs of the broker; unset: they are refused."),
    Key("password.encoder.old.secret", Type.PASSWORD, None,
        "The former secret: passwords that it has encrypted are encrypted again with the present one."),
    Key("password.encoder.keyfactory.algorithm", Type.STRING, None,
        "Java's name of the function that makes keys of the secret; unset: PBKDF2WithHmacSHA512.",
        allowed=KEY_FACTORIES),
    Key("password.encoder.cipher.algorithm", Type.STRING, CBC, "Java's name of the cipher for passwords.",
        allowed=(CBC, GCM)),
    Key("password.encoder.key.length", Type.INT, 128, "Length of the keys for passwords, in bits: 128, 192 or 256.",
        low=128, high=256),
    Key("password.encoder.iterations", Type.INT, 4096, "Iterations of the function that makes keys of the secret.",
        low=1024, high=100_000),
    refused("remote.log.storage.system.enable", Type.BOOLEAN, False,
            "Whether old segments are kept in remote storage."),
    refused("remote.log.storage.manager.class.name", Type.CLASS, None, "Java class that accesses remote storage."),
)  # fmt: skip

ZOOKEEPER_SECURITY_KEYS = (
    Key(SET_ACL, Type.BOOLEAN, False,
        "Whether ZooKeeper nodes are created with Kafka's ACLs: only their creator may change them. All brokers of a "
        "cluster need the same identity."),
    Key(DIGEST_FILE, Type.STRING, None,
        "File with USER:PASSWORD, the identity of the broker for ZooKeeper (scheme digest); only its owner may have "
        "access (mode 0600). Unset: none."),
    Key(ENABLE, Type.BOOLEAN, False, "Whether connections to ZooKeeper use TLS."),
    idle("zookeeper.clientCnxnSocket", Type.STRING, None,
        "Java class of connections to ZooKeeper, which Kafka requires for TLS."),
    Key(f"{TRUST_STORE}.location", Type.STRING, None,
        "PEM file with certificates that sign those of ZooKeeper's servers; unset: those of the system."),
    idle(f"{TRUST_STORE}.password", Type.PASSWORD, None, "Password of the trust store; PEM files have none."),
    Key(f"{TRUST_STORE}.type", Type.STRING, None, "Format of the trust store: PEM; unset: by its name."),
    Key(f"{KEY_STORE}.location", Type.STRING, None,
        "PEM file with the broker's certificate for ZooKeeper, its chain and the private key."),
    Key(f"{KEY_STORE}.password", Type.PASSWORD, None, "Password of the private key in the key store."),
    Key(f"{KEY_STORE}.type", Type.STRING, None, "Format of the key store: PEM; unset: by its name."),
    Key("zookeeper.ssl.protocol", Type.STRING, "TLSv1.2",
        "TLS version of connections to ZooKeeper, where zookeeper.ssl.enabled.protocols is unset.",
        allowed=TLS_VERSIONS),
    Key("zookeeper.ssl.enabled.protocols", Type.LIST, None, "TLS versions of connections to ZooKeeper.",
        allowed=TLS_VERSIONS),
    Key("zookeeper.ssl.cipher.suites", Type.LIST, None,
        "Cipher suites of connections to ZooKeeper, by their standard names; unset: OpenSSL's."),
    Key(HOST_NAMES, Type.STRING, "HTTPS",
        "Whether the certificate of a ZooKeeper server must name its host: https, or empty = no."),
    refused("zookeeper.ssl.crl.enable", Type.BOOLEAN, False,
        "Whether Java downloads lists of revoked certificates."),
    refused("zookeeper.ssl.ocsp.enable", Type.BOOLEAN, False,
        "Whether Java asks OCSP servers for revoked certificates."),
)  # fmt: skip

REFUSAL_REASONS = {
    "sasl.jaas.config": "Kafka ignores it: write listener.name.NAME.MECHANISM.sasl.jaas.config",
    "sasl.server.callback.handler.class": "write listener.name.NAME.MECHANISM.sasl.server.callback.handler.class",
    "transaction.two.phase.commit.enable": "every transaction has a timeout, so that it ends",
    "zookeeper.ssl.crl.enable": "Python's ssl downloads no lists of revoked certificates",
    "zookeeper.ssl.ocsp.enable": "Python's ssl asks no OCSP server",
}

# Refused for the broker as a whole, honoured behind the prefix of a listener.
LISTENER_HONOURED = frozenset(("sasl.jaas.config", "sasl.server.callback.handler.class"))

# Keys without a row of their own that begin so: refused for the same reason.
REFUSED_PREFIXES = (
    "ssl.",
    "sasl.",
    "remote.log.",
    "rlmm.",
    "rsm.",
    "zookeeper.ssl.",
    "password.encoder.",
)
