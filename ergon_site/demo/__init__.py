"""`make demo`: everything on one machine, with data to look at."""
