"""What travels to hosts: code, file mounts; later volumes, buckets, checkpoints."""
