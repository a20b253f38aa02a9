"""The model against the RTL on random command sequences: equal in every bit.

Sequences of one seed run with different memories, so no result depends on the timing of memory.
"""

from dataclasses import replace

import numpy as np
import pytest
from hotrow_rtl.config import preset
from hotrow_rtl.contract.encoding import Opcode, Status
from hotrow_sim.model import open_transport as open_model

from tests.support.fuzz.planning import STARVED
from tests.support.fuzz.player import differences, play
from tests.support.fuzz.rounds import RoundSource
from tests.support.fuzz.setup import FuzzHost, make_setup

TINY = preset("tiny")
# The address width limits row numbers to less than 32 bits; no planner.
NARROW = replace(TINY, name="narrow", address_width=32, planner=False)
SMALL = preset("ecp5")
# SMALL has short row numbers, too; no other test of the default tier builds any but TINY.
CASES = [pytest.param(config, seed, id=f"{config.name}-{seed}",
                      marks=pytest.mark.long if config is not TINY or seed > 3 else ())
         for first, config in enumerate((TINY, STARVED, NARROW, SMALL))
         for seed in (first, first + 4)]
ROUNDS = 8
RINGS_LOG2 = 4
MEMORIES = {
    "ideal": {"latency": 1},
    "far": {"latency": 150, "jitter": 40},
    "stalling": {"latency": 3, "jitter": 9, "stall": 0.5},
    "reordering": {"latency": 20, "jitter": 60, "stall": 0.15, "reorder": True},
}


def rounds_on(hosts, seed, setup, count, config=TINY):
    """Play the same rounds on every host; yield the observations of each round."""
    source = RoundSource(np.random.default_rng(seed), config, setup, 1 << RINGS_LOG2)
    for _ in range(count):
        drawn = source.draw()
        observations = [play(host, drawn) for host in hosts]
        source.follow(drawn, observations[0])
        yield observations


@pytest.mark.slow
@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("config, seed", CASES)
def test_model_equals_device(config, seed, memory):
    from hotrow_sim.verilated.transport import open_transport as open_sim

    setup = make_setup(np.random.default_rng([seed, 1]), config)
    device = open_sim(config=config, seed=seed, **MEMORIES[memory])
    hosts = [FuzzHost(transport, setup, RINGS_LOG2)
             for transport in (open_model(config=config), device)]
    for number, (model, rtl) in enumerate(rounds_on(hosts, [seed, 2], setup, ROUNDS, config)):
        unequal = differences(model, rtl)
        assert not unequal, (
            f"seed {seed}, {config.name}, memory {memory}, round {number}, model and RTL differ:\n"
            + "\n".join(unequal[:20]))
    assert device.violations() == []


@pytest.mark.slow
def test_the_sequences_cover_every_status_and_command():
    seen, halts = set(), 0
    for seed in range(24):
        config = (TINY, STARVED)[seed % 2]
        setup = make_setup(np.random.default_rng([seed, 1]), config)
        host = FuzzHost(open_model(config=config), setup, RINGS_LOG2)
        for [observation] in rounds_on([host], [seed, 2], setup, ROUNDS, config):
            halts += sum(map(len, observation.halts.values()))
            seen |= {(done["opcode"], done["status"])
                     for queue in observation.completions.values() for done in queue}
    faults = {Status.TIMEOUT, Status.STALLED, Status.PARITY}  # of hardware
    assert {status for _, status in seen} == set(Status) - faults
    assert {opcode for opcode, status in seen if status == Status.OK} == set(Opcode)
    assert halts > 10


def test_a_difference_of_one_bit_is_reported():
    setup = make_setup(np.random.default_rng(0), TINY)
    hosts = [FuzzHost(open_model("tiny"), setup, RINGS_LOG2) for _ in range(2)]
    [(one, other)] = rounds_on(hosts, 3, setup, 1)
    assert differences(one, other) == []
    other.buffers[7][1234] ^= 1
    other.completions["lookup"][0]["hits"] += 1
    other.registers["FAULT"] ^= 1
    lines = differences(one, other)
    assert len(lines) == 3
    assert "0x4d2" in lines[2] and "hits" in lines[0] and "FAULT" in lines[1]
