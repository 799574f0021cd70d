"""Figures of the Spark pipeline beside those of Spark's own Kafka connector.

compare.py   starts the broker and a driver for each side, and runs the rows in turn
rows.py      what is measured, with its limits
topics.py    the records that the rows read
drivers.py   the other end of a driver: starts the process, sends it jobs
driver.py    the process of a driver: one Spark session for many jobs
works.py     what a job does in a driver
commits.py   commits of tables, without Spark
restart.py   the job that is killed and started again
offsets.py   ListOffsets requests as fast as the broker answers
report.py    JSON and Markdown
"""
