"""Routes: messages of one node that are sent to another broker."""
