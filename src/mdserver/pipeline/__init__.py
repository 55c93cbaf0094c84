"""PySpark jobs beside the server: archive, rollup, derive, audit, replay, capacity."""
