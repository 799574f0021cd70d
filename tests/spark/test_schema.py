"""The schema of the source is that of Spark's Kafka connector."""

from pyspark.sql import SparkSession

CONNECTOR = (  # of format("kafka"), in the order of its columns
    "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
)
HEADERS = ",headers:array<struct<key:string,value:binary>>>"


def test_format_is_found_without_registration_and_has_the_schema_of_the_connector(spark: SparkSession) -> None:
    """Trap 2: Spark looks for packages named `pyspark_*`."""
    reader = spark.read.format("kafkalite").option("kafka.bootstrap.servers", "localhost:1").option("subscribe", "t")
    assert reader.load().schema.simpleString() == CONNECTOR
    assert reader.option("includeHeaders", "true").load().schema.simpleString() == CONNECTOR[:-1] + HEADERS
