"""Plan the size of a cluster from runs of benchmarks."""
