"""`mdserver bench`: measure servers. The commands are those of `mdserver.bench`."""

from mdserver.bench.commands import bench as command

__all__ = ["command"]
