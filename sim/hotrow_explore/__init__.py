"""The explorer: finds the placement of the embedding tables that trains a model fastest.

All times are projections of a model of a training step, and every page says so.
"""
