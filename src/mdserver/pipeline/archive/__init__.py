"""Archive every line of a source's streams in Delta tables, exactly once."""
