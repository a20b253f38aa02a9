"""The compiled engine against the model, and the Verilated card, on random command sequences.

All answers are equal in every bit:

    python -m tests.engine.test_commands --commands 100000 --seed 1 --rtl tiny ecp5
"""

import argparse
from itertools import count

import numpy as np
import pytest
from hotrow.transports.cpu import CpuTransport
from hotrow.transports.cpu import open_transport as open_cpu
from hotrow_sim.model import open_transport as open_model

from tests.sim.device.test_model_equals_device import NARROW, RINGS_LOG2, SMALL, STARVED, TINY
from tests.support.fuzz.player import differences, play
from tests.support.fuzz.rounds import RoundSource
from tests.support.fuzz.setup import RESULTS, SIZES, FuzzHost, make_setup
from tests.support.fuzz.soak import rough_memory

THREADS = 1, 2, 7
CONFIGS = TINY, STARVED, NARROW, SMALL


def session(config, seed, rounds, golden=True, rtl=False):
    """Play rounds on the engine with each number of threads; return the commands.

    Parameters
    ----------
    config : Config
    seed, rounds : int
    golden, rtl : bool
        Whether the golden model, and the Verilated card with rough memory, play them too. The
        answers of all are compared with those of the first: model, card, engine.

    Raises
    ------
    AssertionError
        Naming what differs.
    """
    setup, played = make_setup(np.random.default_rng([seed, 1]), config), 0
    transports = {"model": open_model(config=config)} if golden else {}
    if rtl:
        from hotrow_sim.verilated.transport import open_transport as open_sim

        transports["RTL"] = open_sim(
            config=config, behaviour=rough_memory(np.random.default_rng([seed, 3]), config))
    transports |= {f"engine of {threads} threads": open_cpu(config=config, threads=threads)
                   for threads in THREADS}
    try:
        hosts = [FuzzHost(transport, setup, RINGS_LOG2) for transport in transports.values()]
        source = RoundSource(np.random.default_rng([seed, 2]), config, setup, 1 << RINGS_LOG2)
        first, *others = transports
        for number in range(rounds):
            drawn = source.draw()
            expected, *answers = [play(host, drawn) for host in hosts]
            source.follow(drawn, expected)
            played += sum(map(len, drawn.commands.values()))
            for name, answer in zip(others, answers, strict=True):
                unequal = differences(expected, answer)
                assert not unequal, (f"seed {seed}, {config.name}, round {number}, {first} and "
                                     f"{name} differ:\n" + "\n".join(unequal))
    finally:
        for transport in transports.values():
            transport.close()
    return played


@pytest.mark.slow
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_engine_equals_model(config):
    for seed in range(4):
        session(config, seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("golden", [True, False])
def test_engine_equals_the_verilated_card(golden):
    session(TINY, 8, 3, golden, rtl=True)


def test_a_difference_is_reported(monkeypatch):
    class Wrong(CpuTransport):
        def read_register(self, offset):
            for array in self._arrays.values():
                if array.size == SIZES[RESULTS]:
                    array[-1] = 0x5A  # however often registers are read
            return super().read_register(offset)

    monkeypatch.setattr(f"{__name__}.open_cpu", lambda config, threads: Wrong(config, threads))
    with pytest.raises(AssertionError, match=rf"seed 8, tiny, round 0, model and engine of 1 "
                                             rf"threads differ:\s+handle {RESULTS}: 1 bytes"):
        session(TINY, 8, 1)


def main():
    names = [config.name for config in CONFIGS]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--commands", type=int, default=100_000, help="at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first session")
    parser.add_argument("--cards", nargs="+", choices=names, default=names)
    parser.add_argument("--rtl", nargs="+", choices=names, default=(),
                        help="cards that are simulated too")
    parser.add_argument("--golden", type=int, default=1,
                        help="the model plays every so many sessions of a card")
    options = parser.parse_args()
    configs = [config for config in CONFIGS if config.name in options.cards]
    played = dict.fromkeys(("engine", "model", "RTL"), 0)
    for number in count():
        turn, seed = number // len(configs), options.seed + number
        config = configs[number % len(configs)]
        golden, rtl = turn % options.golden == 0, config.name in options.rtl
        commands = session(config, seed, 20, golden, rtl)
        for name, took_part in zip(played, (True, golden, rtl), strict=True):
            played[name] += took_part * commands
        print(f"seed {seed}, {config.name}: commands so far {played}", flush=True)
        if played["engine"] >= options.commands:
            return


if __name__ == "__main__":
    main()
