"""Publish archived messages again."""
