"""The data source `kafkalite`: `spark.read.format("kafkalite")` and `spark.readStream.format("kafkalite")`."""

from pyspark.sql.datasource import DataSource

from pyspark_kafkalite.schema import ddl, default_columns


class DefaultSource(DataSource):
    """Kafka topics as tables. Spark creates it with the options of the reader."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "kafkalite"

    def schema(self) -> str:
        """Return the schema, which is that of `format("kafka")`."""
        return ddl(default_columns(headers=self.options.get("includeHeaders", "false").lower() == "true"))
