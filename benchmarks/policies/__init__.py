"""Replacement policies of the golden planner on a trace: `hotrow bench policies`."""
