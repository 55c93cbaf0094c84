"""The parameter table: every `Name = value` that `mdserver run` understands."""
