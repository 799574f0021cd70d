"""aiokafka's administration."""

from kafkalite_sdk.compat.aiokafka.admin.client import AIOKafkaAdminClient
from kafkalite_sdk.compat.aiokafka.admin.new_partitions import NewPartitions
from kafkalite_sdk.compat.aiokafka.admin.new_topic import NewTopic
from kafkalite_sdk.compat.aiokafka.admin.records_to_delete import RecordsToDelete

__all__ = ["AIOKafkaAdminClient", "NewPartitions", "NewTopic", "RecordsToDelete"]
