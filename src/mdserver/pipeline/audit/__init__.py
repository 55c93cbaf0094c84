"""Hold what subscribers received against what was archived."""
