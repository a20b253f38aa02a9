"""Completions that a card must drop, each made of a sound one whose tag is in flight."""

from hotrow_rtl.pcie.layouts import TAGS, Type

HEADER = 12  # bytes


def _dwords(packet):
    return [int.from_bytes(packet[at:at + 4], "big") for at in range(0, HEADER, 4)]


def _other(rng, value, mask):
    return value ^ int(rng.integers(1, mask + 1))


def _byte_count(dwords, payload, rng):
    dwords[1] = dwords[1] & ~0xFFF | _other(rng, dwords[1] & 0xFFF, 0xFFF)
    return payload


def _lower_address(dwords, payload, rng):
    dwords[2] = dwords[2] & ~0x7F | _other(rng, dwords[2] & 0x7F, 0x7F)
    return payload


def _length(dwords, payload, rng):
    dwords[0] = dwords[0] & ~0x3FF | _other(rng, dwords[0] & 0x3FF, 0x3FF)
    return payload


def _tag(dwords, payload, rng):
    dwords[2] |= int(rng.integers(1, 256 // TAGS)) * TAGS << 8
    return payload


def _no_data(dwords, payload, rng):
    dwords[0] &= ~(1 << 30)
    return b""


def _locked(dwords, payload, rng):
    """With data, without data and successful, or a failure."""
    dwords[0] = dwords[0] & ~(0x1F << 24) | Type.LOCKED_COMPLETION << 24
    kind = rng.integers(0, 3)
    if kind:
        dwords[0] &= ~(1 << 30 | 0x3FF)
        dwords[1] = dwords[1] & ~(7 << 13) | (int(kind) - 1) << 13
    return b"" if kind else payload


def _long_header(dwords, payload, rng):
    dwords[0] |= 1 << 29
    return payload


def _short(dwords, payload, rng):
    return payload[4 * int(rng.integers(1, 1 + len(payload) // 4)):]


def _long(dwords, payload, rng):
    """From two double words more on: one more may be a digest."""
    return payload + rng.bytes(4 * int(rng.integers(2, 20)))


def _too_much(dwords, payload, rng):
    """More words than its byte count says are left, and as many as its length says."""
    octets = (dwords[1] & 0xFFF) + 16 * int(rng.integers(1, 9))
    dwords[0] = dwords[0] & ~0x3FF | octets // 4
    return rng.bytes(octets)


DAMAGES = {"byte count": _byte_count, "lower address": _lower_address, "length": _length,
           "tag": _tag, "no data": _no_data, "locked": _locked, "long header": _long_header,
           "short": _short, "long": _long, "too much": _too_much}
UNDEFINED_ENABLES = tuple(kind for kind in DAMAGES if kind != "short")  # where they show all else


def damaged(packet: bytes, kind: str, rng) -> bytes:
    """A completion with other data than `packet`, and one of `DAMAGES`."""
    dwords, payload = _dwords(packet), rng.bytes(len(packet) - HEADER)
    payload = DAMAGES[kind](dwords, payload, rng)
    return b"".join(dword.to_bytes(4, "big") for dword in dwords) + payload
