"""Copies messages between topics of Kafka and subjects of a cluster that has a log of its own."""
