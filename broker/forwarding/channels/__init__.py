"""Channels: messages of one node that another one takes as its credit allows."""
