"""Jobs beside the server, most of them on Spark: archive, rollup, derive, audit, replay, capacity.

`archive` and `derive` read what the server writes: the journal, or Kafka topics with the same
lines. The others read the Delta tables that `archive` makes. `derive` and `replay` publish through
ordinary clients.
"""
