"""A small app with policies of its own, told apart by two names: what an app has to write to have them."""
