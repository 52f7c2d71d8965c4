"""What is sent to a cluster: made from leases and needs as plain data, without a cluster."""
