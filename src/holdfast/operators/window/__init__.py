"""Windows: the rows of a key in a stretch of event time, and when their results are put out."""
