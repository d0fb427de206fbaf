"""Placeholder, see the state room."""
