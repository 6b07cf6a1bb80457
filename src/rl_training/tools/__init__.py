"""What is done with runs: recording, plotting, dreaming, demonstrations."""
