"""What the requests of transactional producers have in common."""
