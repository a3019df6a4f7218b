"""What authors of tasks use: base classes, registration, discovery."""
