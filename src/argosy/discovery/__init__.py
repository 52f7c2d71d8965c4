"""The address book and what a program is told: host names, environment, assignments; pure."""
