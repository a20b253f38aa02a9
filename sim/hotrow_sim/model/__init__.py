"""The accelerator as golden models with registers, rings and memory: the transport `model`."""

from .device import Device, open_transport

__all__ = ["Device", "open_transport"]
