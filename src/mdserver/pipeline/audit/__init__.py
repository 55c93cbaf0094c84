"""Audit deliveries: compare the receipts of subscribers with the archive."""
