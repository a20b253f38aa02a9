"""Endpoints for cocotb test benches."""
