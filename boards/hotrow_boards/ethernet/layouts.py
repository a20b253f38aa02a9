"""Payloads of a UDP port's streams: datagrams in words of four bytes, the first lowest."""

from amaranth.lib import data
from hotrow_rtl.contract.link_frames import CRC_BYTES

from ..link.layouts import FRAME_BYTES

WORD_BYTES = 4
LARGEST_DATAGRAM = FRAME_BYTES + CRC_BYTES  # bytes of one that a frame fits into
LARGEST_WORDS = -(-LARGEST_DATAGRAM // WORD_BYTES)

peer = data.StructLayout({"port": 16, "address": 32})
PEER_BYTES = peer.size // 8

# A word in either direction. `length`, in bytes, and peer are those of the datagram in each of its
# words; `last_be` has a single bit, that of the last byte, in the last word.
_WORD = {"data": 8 * WORD_BYTES, "last": 1, "last_be": WORD_BYTES, "peer": peer, "length": 16}
sent_word = data.StructLayout(_WORD)
received_word = data.StructLayout({**_WORD, "error": 1})
