"""NEXMark's queries, a join and a chain of operators: their input, both engines' programs, their trials."""
