"""Advice: what other thresholds and windows would have done with the load a queue has had.

A history is read (history), the load behind it recovered (demand) or made up (synthetic), and run through
the broker's own engine with another clock (replay) once for every candidate (candidates).
"""
