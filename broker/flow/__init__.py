"""Credit: who may send how much, and why not more.

Pure rooms: no Proton, no clock, no disk. Time arrives as an argument, decisions leave through ports.
"""
