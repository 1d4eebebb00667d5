"""Selectors in the syntax of JMS: parsing, and evaluation of a message's bytes."""
