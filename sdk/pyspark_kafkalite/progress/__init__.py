"""Shows the progress of queries: consumer groups, JSON lines, metrics for Prometheus.

listener = ProgressListener(JsonLines("progress.jsonl"), MetricsFile("orders.prom"), name="orders")
spark.streams.addListener(listener)
...
listener.close()  # when the query has ended
"""

from typing import TYPE_CHECKING

from kafkalite_sdk.lazy import lazy_names

if TYPE_CHECKING:
    from pyspark_kafkalite.progress.bar import ProgressBar as ProgressBar
    from pyspark_kafkalite.progress.endpoint import MetricsEndpoint as MetricsEndpoint
    from pyspark_kafkalite.progress.group import ProgressGroup as ProgressGroup
    from pyspark_kafkalite.progress.json_lines import JsonLines as JsonLines
    from pyspark_kafkalite.progress.listener import ProgressListener as ProgressListener
    from pyspark_kafkalite.progress.metrics import MetricsFile as MetricsFile
    from pyspark_kafkalite.progress.model import BatchProgress as BatchProgress
    from pyspark_kafkalite.progress.model import Output as Output
    from pyspark_kafkalite.progress.report import HtmlReport as HtmlReport

_MODULES = {
    "BatchProgress": "pyspark_kafkalite.progress.model",
    "HtmlReport": "pyspark_kafkalite.progress.report",
    "JsonLines": "pyspark_kafkalite.progress.json_lines",
    "MetricsEndpoint": "pyspark_kafkalite.progress.endpoint",
    "MetricsFile": "pyspark_kafkalite.progress.metrics",
    "Output": "pyspark_kafkalite.progress.model",
    "ProgressBar": "pyspark_kafkalite.progress.bar",
    "ProgressGroup": "pyspark_kafkalite.progress.group",
    "ProgressListener": "pyspark_kafkalite.progress.listener",
}

__all__ = [*_MODULES]


__getattr__ = lazy_names(__name__, _MODULES)
