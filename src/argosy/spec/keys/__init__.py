"""The keys of a task file: their shapes, what they mean, and how their values are written."""
