"""The shell around `decide`: look, decide, save, act; nothing else changes a group."""
