"""The script for spark-submit, in a directory of its own: Spark puts it at the front of the import path."""
