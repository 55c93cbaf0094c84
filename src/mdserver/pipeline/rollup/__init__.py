"""Roll samples of statistics up into summaries of minutes, hours, days and months."""
