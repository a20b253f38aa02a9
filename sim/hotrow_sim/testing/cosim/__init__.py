"""Endpoints for cocotb test benches. Imports cocotb only inside a simulation."""
