"""The leases of a machine that is reached from elsewhere: its reservation file, and its desk."""
