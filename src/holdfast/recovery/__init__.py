"""Where the bytes of state are found again: on this host, or in checkpoint storage."""
