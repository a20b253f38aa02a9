"""Replacement policies on a trace, by the planner's model: `hotrow bench policies`."""
