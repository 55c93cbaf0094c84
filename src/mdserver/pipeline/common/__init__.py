"""What several jobs use: sources, rows, tables and Spark itself."""
