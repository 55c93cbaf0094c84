"""Iceberg metadata over the files of the Delta tables."""
