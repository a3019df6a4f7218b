"""What the contenders' workers load: the same empty handler, declared the way of each."""
