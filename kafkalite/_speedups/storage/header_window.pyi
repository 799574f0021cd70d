"""What Python sees of it: nothing."""
