"""Memory of the ring of banks."""

from amaranth.hdl import Shape
from hotrow_rtl.config import RING_BEATS, Config, log2
from hotrow_rtl.lookup.banks.bank_queue import BACKLOG, IN_FLIGHT


def bank_ring_bits(config: Config, carried, request, shared, answer, beats=RING_BEATS):
    """What a beat leaves behind and which banks it asks; of each bank the requests that it has yet
    to be asked, the lanes that it has been, and its answers for every lane.

    Parameters
    ----------
    carried, request, shared, answer : ShapeCastable
    beats : int
        As of `BankCrossbar`.
    """
    carried, request, shared, answer = (
        Shape.cast(shape).width for shape in (carried, request, shared, answer))
    lanes, slot = config.lanes, log2(beats)
    bank = (BACKLOG * (lanes + slot + shared + lanes * request)
            + IN_FLIGHT * (slot + log2(lanes) + 1) + beats * lanes * answer)
    beat = carried + lanes * log2(config.banks) + config.banks
    return beats * beat + config.banks * bank
