"""What ``bench/recovery.py`` is made of: a cluster that loses the host with the state."""
