"""Derive messages from messages by rules, and publish them."""
