"""Finds Java as Spark finds it."""

import os
import shutil


def java_command() -> str | None:
    """Return the path of Java; None = there is none."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java") if not home else shutil.which(os.path.join(home, "bin", "java"))
