"""Payloads of a UDP port's streams: datagrams in words of four bytes, little-endian."""

from amaranth.lib import data
from hotrow_rtl.contract.link_frames import CRC_BYTES

from ..link.layouts import FRAME_BYTES

WORD_BYTES = 4
LARGEST_DATAGRAM = FRAME_BYTES + CRC_BYTES  # bytes of the largest frame
LARGEST_WORDS = -(-LARGEST_DATAGRAM // WORD_BYTES)

peer = data.StructLayout({"port": 16, "address": 32})
PEER_BYTES = peer.size // 8

# A word in either direction. Every word carries the peer of its datagram and `length`, its size in
# bytes. In the last word, `last_be` is the one-hot position of the last byte.
_WORD = {"data": 8 * WORD_BYTES, "last": 1, "last_be": WORD_BYTES, "peer": peer, "length": 16}
sent_word = data.StructLayout(_WORD)
received_word = data.StructLayout({**_WORD, "error": 1})
