"""What the commands of all apps share: bases, options, tables, a live line."""
