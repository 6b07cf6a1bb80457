"""Tools for runs: videos, plots, dreams, demonstrations."""
