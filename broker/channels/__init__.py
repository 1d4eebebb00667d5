"""CHANNELS: topics that are sent out as datagrams, at no more than a rate."""
