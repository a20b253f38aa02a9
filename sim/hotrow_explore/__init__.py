"""The explorer: which placement of the embedding tables trains a model fastest on a machine.

Times are projected by a model of a training step, never measured, and every page says so.
"""
