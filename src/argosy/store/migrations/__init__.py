"""Alembic's migrations of the store: forward only, run by `Store.open`."""
