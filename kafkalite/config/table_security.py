"""Keys on which safety hangs, all refused until what they ask for exists (Kafka's SslConfigs, SaslConfigs and others).

A broker that quietly ignored an authorizer, a keystore or a remote copy would be worse than one that does not start.
"""

from functools import partial

from kafkalite.config.keys import Key, Standing, Type

refused = partial(Key, standing=Standing.REFUSED)
idle = partial(Key, standing=Standing.WITHOUT_EFFECT)

SECURITY_KEYS = (
    refused("authorizer.class.name", Type.STRING, "", "Who decides what a client may do."),
    refused("super.users", Type.STRING, "", "Who may do everything."),
    idle("allow.everyone.if.no.acl.found", Type.BOOLEAN, False, "Allow what no rule speaks of."),
    idle("principal.builder.class", Type.CLASS, None, "A Java class that names principals."),
    refused("sasl.enabled.mechanisms", Type.LIST, ("GSSAPI",), "How clients may log in."),
    refused("sasl.mechanism.inter.broker.protocol", Type.STRING, "GSSAPI", "How brokers log in."),
    refused("sasl.jaas.config", Type.PASSWORD, None, "Accounts of a mechanism."),
    refused("sasl.server.callback.handler.class", Type.CLASS, None, "A Java class that checks logins."),
    idle("sasl.server.max.receive.size", Type.INT, 524_288, "The largest message of a login.", low=1),
    refused("connections.max.reauth.ms", Type.LONG, 0, "After how long a client must log in again."),
    refused("ssl.client.auth", Type.STRING, "none", "Whether clients show a certificate.",
            allowed=("required", "requested", "none")),
    refused("ssl.keystore.location", Type.STRING, None, "The broker's key and certificate."),
    refused("ssl.keystore.password", Type.PASSWORD, None, "Password of the key store."),
    refused("ssl.keystore.key", Type.PASSWORD, None, "The broker's key as PEM."),
    refused("ssl.keystore.certificate.chain", Type.PASSWORD, None, "The broker's certificate as PEM."),
    refused("ssl.key.password", Type.PASSWORD, None, "Password of the key."),
    refused("ssl.truststore.location", Type.STRING, None, "Whom the broker trusts."),
    refused("ssl.truststore.password", Type.PASSWORD, None, "Password of the trust store."),
    refused("ssl.truststore.certificates", Type.PASSWORD, None, "Whom the broker trusts, as PEM."),
    idle("ssl.keystore.type", Type.STRING, "JKS", "Format of the key store."),
    idle("ssl.truststore.type", Type.STRING, "JKS", "Format of the trust store."),
    idle("ssl.protocol", Type.STRING, "TLSv1.3", "The TLS version."),
    idle("ssl.enabled.protocols", Type.LIST, ("TLSv1.2", "TLSv1.3"), "TLS versions allowed."),
    idle("ssl.endpoint.identification.algorithm", Type.STRING, "https", "How a server's name is checked."),
    idle("ssl.principal.mapping.rules", Type.STRING, "DEFAULT", "How a certificate names its owner."),
    refused("ssl.cipher.suites", Type.LIST, (), "Cipher suites allowed."),
    refused("ssl.engine.factory.class", Type.CLASS, None, "A Java class that makes TLS engines."),
    idle("ssl.keymanager.algorithm", Type.STRING, "SunX509", "Java's algorithm of key managers."),
    idle("ssl.provider", Type.STRING, None, "Java's security provider."),
    idle("ssl.secure.random.implementation", Type.STRING, None, "Java's random numbers for TLS."),
    idle("ssl.trustmanager.algorithm", Type.STRING, "PKIX", "Java's algorithm of trust managers."),
    idle("sasl.kerberos.kinit.cmd", Type.STRING, "/usr/bin/kinit", "Path of kinit."),
    idle("sasl.kerberos.min.time.before.relogin", Type.LONG, 60_000, "Time between two refreshes of a ticket."),
    idle("sasl.kerberos.principal.to.local.rules", Type.LIST, ("DEFAULT",), "Rules from principals to short names."),
    refused("sasl.kerberos.service.name", Type.STRING, None, "Kerberos name of the broker."),
    idle("sasl.kerberos.ticket.renew.jitter", Type.DOUBLE, 0.05, "Random part of the renewal time."),
    idle("sasl.kerberos.ticket.renew.window.factor", Type.DOUBLE, 0.8, "When a ticket is renewed."),
    refused("sasl.login.callback.handler.class", Type.CLASS, None, "A Java class of the broker's own login."),
    refused("sasl.login.class", Type.CLASS, None, "A Java class of the broker's own login."),
    idle("sasl.login.refresh.buffer.seconds", Type.SHORT, 300, "Time left at a refresh.", low=0, high=3600),
    idle("sasl.login.refresh.min.period.seconds", Type.SHORT, 60, "Time between two refreshes.", low=0, high=900),
    idle("sasl.login.refresh.window.factor", Type.DOUBLE, 0.8, "When a login is refreshed.", low=0.5, high=1),
    idle("sasl.login.refresh.window.jitter", Type.DOUBLE, 0.05, "Random part of the refresh time.", low=0, high=0.25),
    refused("delegation.token.secret.key", Type.PASSWORD, None, "Signs delegation tokens."),
    idle("delegation.token.max.lifetime.ms", Type.LONG, 604_800_000, "The longest life of a token.", low=1),
    idle("delegation.token.expiry.time.ms", Type.LONG, 86_400_000, "Life of a token between renewals.", low=1),
    refused("password.encoder.secret", Type.PASSWORD, None, "Encrypts passwords kept by the broker."),
    refused("remote.log.storage.system.enable", Type.BOOLEAN, False, "Keep old segments in remote storage."),
    refused("remote.log.storage.manager.class.name", Type.CLASS, None, "A Java class for remote storage."),
)  # fmt: skip

# Keys without a row of their own that begin so: refused for the same reason.
REFUSED_PREFIXES = (
    "ssl.",
    "sasl.",
    "listener.name.",
    "remote.log.",
    "rlmm.",
    "rsm.",
    "zookeeper.ssl.",
    "password.encoder.",
)
