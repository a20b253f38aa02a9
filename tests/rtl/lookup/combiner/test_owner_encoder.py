import pytest
from amaranth.sim import Simulator
from hotrow_rtl.config import preset
from hotrow_rtl.lookup.combiner.combiner import OwnerEncoder


@pytest.mark.parametrize("name", ["tiny", "alveo-u55c"])
def test_every_position_and_none(name):
    config = preset(name)
    dut = OwnerEncoder(config)

    async def check(ctx):
        positions = [(1, back, lane) for back in range(config.window_beats + 1)
                     for lane in range(config.lanes)]
        for number, wanted in enumerate([*positions, (0, 0, 0)]):
            ctx.set(dut.joins, 1 << number if number < len(positions) else 0)
            assert (ctx.get(dut.any), ctx.get(dut.back), ctx.get(dut.lane)) == wanted
    simulator = Simulator(dut)
    simulator.add_testbench(check)
    simulator.run()
