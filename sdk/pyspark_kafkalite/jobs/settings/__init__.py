"""What a job file says: its sections, checked, with the values that are used."""
