"""Well-behaved clients, and hostile ones beside them: two processes for the rig of tests/torture/test_fairness.py."""
