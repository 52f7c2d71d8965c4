"""Linux as it is: system calls, netlink, the holder of namespaces, and the router's rules."""
