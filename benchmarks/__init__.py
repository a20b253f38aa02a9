"""Benchmarks that compare the card with other programs, and studies of the design.

`hotrow bench NAME` runs them from a checkout; the wheel does not contain them.
"""
