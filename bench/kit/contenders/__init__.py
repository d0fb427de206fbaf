"""The contenders: each does the same count and sum per word, in its own way."""
