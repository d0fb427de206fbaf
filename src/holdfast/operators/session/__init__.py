"""Windows made of rows that follow each other closely."""
