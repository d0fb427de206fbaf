"""Where the bytes of a run can be had, and how they get there: this host's disk, checkpoint storage."""
