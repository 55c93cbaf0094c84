"""mdserver: a real-time messaging server that loses nothing."""

__version__ = "0.2.0"
