"""Roll samples of statistics up to minutes, hours, days and months."""
