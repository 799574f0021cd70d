"""Reads the texts of the configuration file: properties, and the references in their values."""
