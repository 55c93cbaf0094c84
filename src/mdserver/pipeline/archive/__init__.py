"""Put every line of a source's streams into Delta tables, exactly once."""
