"""NEXMark's queries, and how to run them on input of your own."""
