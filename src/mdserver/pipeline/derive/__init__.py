"""Publish what rules make of the messages."""
