"""User code on all rows of the windows that close, of whatever kind the windows are."""
