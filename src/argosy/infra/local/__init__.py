"""The local infra: this machine as one host, and pools of virtual hosts on it."""
