"""Windows made of rows that follow each other closely, and functions over all rows of a window."""
