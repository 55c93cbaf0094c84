"""Parts that several jobs share: sources, rows, tables and the Spark session."""
