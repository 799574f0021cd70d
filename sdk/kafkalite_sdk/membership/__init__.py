"""Membership in consumer groups: one pure machine for three group protocols (`membership`)."""
