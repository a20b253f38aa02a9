"""The accelerator as a golden model behind its registers: the transport `model`."""

from .device import Device, open_transport

__all__ = ["Device", "open_transport"]
