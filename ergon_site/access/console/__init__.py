"""What the console pages of all apps share: pages, lists and their cells, forms, dialogs, charts."""
