"""The algorithms: named loss functions, then the class that owns networks and optimizers."""
