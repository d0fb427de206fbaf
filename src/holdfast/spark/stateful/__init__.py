"""PySpark's ``StatefulProcessor``, unchanged, on Holdfast's state."""
