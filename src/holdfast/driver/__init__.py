"""The protocol of a running pipeline: epochs, checkpoints beside them, starts, and the way back from a loss."""
