"""Tasks, and the one table that training, the command line, the server, `look` and `explain` ask."""
