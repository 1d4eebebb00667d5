"""What a connection agrees on: open, begin, attach, detach, their names, lifetimes and permissions."""
