"""The settings of a job file: its sections, checked, with the values that are used."""
