"""The first page of the console: items that need attention, figures and charts of every app."""
