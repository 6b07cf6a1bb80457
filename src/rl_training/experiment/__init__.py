"""The surroundings of training: configs, presets, the registry, run directories, checkpoints and logs."""
