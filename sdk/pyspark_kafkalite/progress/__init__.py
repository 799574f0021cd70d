"""Shows the progress of queries: consumer groups, JSON lines, metrics for Prometheus.

listener = ProgressListener(JsonLines("progress.jsonl"), MetricsFile("orders.prom"), name="orders")
spark.streams.addListener(listener)
...
listener.close()  # when the query has ended
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
    "BatchProgress": "model",
    "HtmlReport": "report",
    "JsonLines": "json_lines",
    "MetricsEndpoint": "endpoint",
    "MetricsFile": "metrics",
    "Output": "model",
    "ProgressBar": "bar",
    "ProgressGroup": "group",
    "ProgressListener": "listener",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
