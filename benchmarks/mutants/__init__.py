"""Planted bugs: small changes to the package that a named test must notice."""
