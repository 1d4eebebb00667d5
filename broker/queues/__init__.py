"""Order: which message is next, who gets it, and where it goes back to.

Pure rooms: they know neither credit nor Proton nor disk.
"""
