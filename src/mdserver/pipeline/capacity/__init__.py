"""Plan a cluster from benchmark runs."""
