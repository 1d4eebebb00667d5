"""The control plane of connections: open, begin, attach, detach, names, lifetimes and permissions."""
