"""Replay archived messages: publish them again."""
