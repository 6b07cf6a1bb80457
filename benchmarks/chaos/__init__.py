"""Kills, damages and forges runs, and asks whether anything was lost, loaded or run: `make chaos`."""
