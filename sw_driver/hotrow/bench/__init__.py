"""Benchmarks of the accelerator: `hotrow bench`."""
