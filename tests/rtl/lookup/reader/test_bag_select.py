import random

import pytest
from amaranth import Module, Signal
from amaranth.sim import Simulator
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.reader.batch_descriptor import bag_owner, chunk_bags
from hotrow_rtl.lookup.reader.lane_assigner import lane_owners


@pytest.mark.parametrize("name", ["tiny", "alveo-u55c"])
def test_lane_owners(name):
    """Bags that end one after the other, some together, before, in and after the word."""
    config, draw = preset(name), random.Random(3)
    lanes, bags, size = config.lanes, chunk_bags(config), bag_owner(config).size
    m, ends, owners = Module(), Signal(bags * lanes), Signal(bags * size)
    found = lane_owners(m, config, "word", ends, owners)

    async def check(ctx):
        for _ in range(60):
            at = sorted(draw.randrange(-1, draw.choice([2, lanes + 1, 3 * lanes]))
                        for _ in range(bags))
            names = [draw.getrandbits(size) for _ in range(bags)]
            ctx.set(ends, sum(1 << bag * lanes + lane for bag, end in enumerate(at)
                              for lane in range(lanes) if end > lane))
            ctx.set(owners, sum(each << size * bag for bag, each in enumerate(names)))
            for lane in range(lanes):
                wanted = next((each for each, end in zip(names, at, strict=True) if end > lane), 0)
                assert ctx.get(found[lane]) == wanted
    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()
