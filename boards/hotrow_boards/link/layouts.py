"""Payloads of a link's streams, with the sizes of the contract."""

from amaranth.lib import data
from hotrow_rtl.contract.link_frames import COUNTERS, HEADER, HEADER_BYTES, LARGEST_PAYLOAD

FRAME_BYTES = HEADER_BYTES + LARGEST_PAYLOAD  # largest frame without its CRC

frame_byte = data.StructLayout({"data": 8, "last": 1})
header = data.StructLayout({field.name: 8 * field.bytes for field in HEADER.values()})
assert header.size == 8 * HEADER_BYTES

register_request = data.StructLayout({"write": 1, "address": 32, "data": 32})
memory_request = data.StructLayout({"write": 1, "address": 32, "length": 16})
counter_events = data.StructLayout(dict.fromkeys(COUNTERS, 1))  # counters to increment
