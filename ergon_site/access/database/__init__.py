"""What all apps share about the database itself, whichever rows they keep in it."""
