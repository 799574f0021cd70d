"""Exempts modules from the garbage collections of Spark's Python workers.

A worker that Spark uses again collects all garbage after each task. With the modules of a task imported (PySpark,
pyarrow, the SDK) a collection walks some hundred thousand objects and finds nothing: 40 % of the CPU time of an ingest
with tasks of 64 MiB.
"""

import gc
import sys

_frozen_modules = 0


def freeze_modules() -> None:
    """Exempt all objects that exist now, if modules were imported since the last call; at the end of a task.

    Garbage that is not collected yet is kept, too; so objects are not exempted after each task.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        gc.freeze()
        _frozen_modules = len(sys.modules)
