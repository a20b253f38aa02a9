"""The compiled engine against the model on random command sequences: equal in every bit.

    python -m tests.engine.test_commands --commands 100000 --seed 1
"""

import argparse
from itertools import count

import numpy as np
import pytest
from hotrow.transports.cpu import open_transport as open_cpu
from hotrow_sim.model import open_transport as open_model

from tests.sim.device.test_model_equals_device import NARROW, RINGS_LOG2, SMALL, STARVED, TINY
from tests.support.fuzz.player import differences, play
from tests.support.fuzz.rounds import RoundSource
from tests.support.fuzz.setup import FuzzHost, make_setup

THREADS = 1, 2, 7
CONFIGS = TINY, STARVED, NARROW, SMALL


def session(config, seed, rounds):
    """Play rounds on the model and on the engine with each number of threads; return the commands.

    Raises
    ------
    AssertionError
        Naming what differs.
    """
    setup, played = make_setup(np.random.default_rng([seed, 1]), config), 0
    transports = open_model(config=config), *(
        open_cpu(config=config, threads=threads) for threads in THREADS)
    try:
        hosts = [FuzzHost(transport, setup, RINGS_LOG2) for transport in transports]
        source = RoundSource(np.random.default_rng([seed, 2]), config, setup, 1 << RINGS_LOG2)
        for number in range(rounds):
            drawn = source.draw()
            model, *engines = [play(host, drawn) for host in hosts]
            source.follow(drawn, model)
            played += sum(map(len, drawn.commands.values()))
            for threads, engine in zip(THREADS, engines, strict=True):
                unequal = differences(model, engine)
                assert not unequal, (f"seed {seed}, {config.name}, round {number}, {threads} "
                                     "threads, model and engine differ:\n" + "\n".join(unequal))
    finally:
        for transport in transports:
            transport.close()
    return played


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_engine_equals_model(config):
    for seed in range(4):
        session(config, seed, 6)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commands", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    played = 0
    for seed in count(options.seed):
        played += session(CONFIGS[seed % len(CONFIGS)], seed, 20)
        print(f"seed {seed}: {played} commands", flush=True)
        if played >= options.commands:
            return


if __name__ == "__main__":
    main()
