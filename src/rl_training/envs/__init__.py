"""Environments: one factory, one step semantics for every backend."""
