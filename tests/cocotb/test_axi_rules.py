"""The checker of AXI4 rules accepts legal traffic, and names each rule that is broken."""

import pytest
from hotrow_sim.bench.axi_rules import READ, WRITE, AxiRules

QUIET = dict.fromkeys(AxiRules(READ + WRITE, 16).pins, 0)
ADDRESS = {"addr": 0x1000, "id": 1, "len": 1, "size": 4, "burst": 1, "cache": 3, "prot": 0,
           "valid": 1, "ready": 1}


def channel(name, **values):
    """Pins of one channel, by default of a handshake."""
    return {name + pin: value for pin, value in {"valid": 1, "ready": 1, **values}.items()}


def address(name, **changes):
    return channel(name, **{**ADDRESS, **changes})


BEATS = [channel("w", data=1, strb=3), channel("w", data=2, strb=0, last=1)]
LEGAL = [
    address("ar", ready=0), address("ar"), channel("r", id=1, data=7, ready=0),
    channel("r", id=1, data=7), channel("r", id=1, data=8, last=1),
    address("aw"), *BEATS, channel("b", id=1),
    *BEATS, address("aw", len=255, addr=0) | channel("w", data=3, ready=0),  # data first
]


def broken(*cycles):
    """The rules that a run breaks; each cycle has the pins that are not 0."""
    rules = AxiRules(READ + WRITE, 16)
    rules.cycle(QUIET.get, reset=True)
    for pins in cycles:
        rules.cycle((QUIET | pins).get)
    return [text.partition(": ")[2] for text in rules.broken], rules


def test_legal_traffic():
    found, rules = broken({}, *LEGAL[:-3])
    assert not found and rules.idle and rules.bursts == {"ar": 1, "aw": 1}
    found, rules = broken({}, *LEGAL[-3:-1])
    assert not found and not rules.idle


@pytest.mark.parametrize("rule, cycles", [
    ("arvalid is high after reset", [address("ar")]),
    ("arvalid fell before arready", [{}, address("ar", ready=0), {}]),
    ("araddr changed before arready", [{}, address("ar", ready=0), address("ar", addr=0)]),
    ("wdata changed before wready", [{}, channel("w", data=1, ready=0), channel("w", data=2)]),
    ("wstrb changed before wready", [{}, channel("w", strb=1, ready=0), channel("w", strb=3)]),
    ("aw: undefined handshake", [{}, address("aw", valid=None)]),
    ("aw: undefined payload", [{}, address("aw", addr=None, ready=0)]),
    ("awsize is not the bus's width", [{}, address("aw", size=3)]),
    ("arburst is not INCR", [{}, address("ar", burst=2)]),
    ("arcache 0, arprot 0", [{}, address("ar", cache=0)]),
    ("awcache 3, awprot 2", [{}, address("aw", prot=2)]),
    ("araddr 0x1008 is not aligned", [{}, address("ar", addr=0x1008, len=0)]),
    ("ar: a burst crosses 4 KiB: 0x1ff0, 2 beats", [{}, address("ar", addr=0x1FF0)]),
    ("rid 1 has no burst in flight", [{}, channel("r", id=1, last=1)]),
    ("rid 0 has no burst in flight", [{}, address("ar"), channel("r", id=0)]),
    ("rlast of id 1 with 1 beats to come", [{}, address("ar"), channel("r", id=1, last=1)]),
    ("rlast of id 1 with 0 beats to come", [{}, address("ar", len=0), channel("r", id=1)]),
    ("wlast missing on the last beat", [{}, address("aw", len=0), channel("w")]),
    ("wlast after 1 beats of a burst of 2", [{}, address("aw"), channel("w", last=1)]),
    ("wlast after 2 beats of a burst of 1", [{}, *BEATS, address("aw", len=0)]),
    ("bid 2 has no burst in flight", [{}, address("aw"), *BEATS, channel("b", id=2)]),
    ("an answer before the last beat", [{}, address("aw"), channel("b", id=1)]),
])
def test_each_rule(rule, cycles):
    assert broken(*cycles)[0] == [rule]
