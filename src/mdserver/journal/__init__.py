"""Append-only segment files of committed messages and events."""
