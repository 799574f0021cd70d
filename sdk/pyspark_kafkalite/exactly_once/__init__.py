"""The option `exactlyOnce` of the sink: the tasks of a micro-batch write transactions, which the driver ends.

`attempts` is what a task attempt writes, `committer` what the driver does, `decision_log` the topic of decisions.
"""
