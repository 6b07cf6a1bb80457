"""What surrounds training: configs, run directories, checkpoints, logs and the terminal."""
