"""Answers to ``sluice why``: what holds a node's producers and consumers up, and what to do about it."""
