"""Enforces client quotas: charges requests, sets their throttle times, and mutes connections. Imported with the first
quota.
"""
