"""Logs of attempts: files that programs append to, read by offset and time, followed, capped."""
