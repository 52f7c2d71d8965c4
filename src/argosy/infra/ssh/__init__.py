"""Infras `ssh/NAME`: pools of hosts that are reached by the system's `ssh`."""
