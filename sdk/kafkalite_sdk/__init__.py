"""The client SDK for asyncio. It works with kafkalite and with Apache Kafka."""
