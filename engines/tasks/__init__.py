"""The interface for authors of tasks: base classes, registration, discovery."""
