"""A broker with SASL_SSL and ACLs, for tests that know nothing of them: `AGAINST=kafkalite-secured`.

1. Clients of the libraries (librdkafka, aiokafka, kafka-python, the SDK) log in by SCRAM-SHA-512 themselves: `clients`
   gives them the settings.
2. Sockets, programs and Java's tools have no settings: `front` logs in for them, over SASL_SSL as the same user.
3. The user has ACLs for what clients do, and is no super user.
"""
