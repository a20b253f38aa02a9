"""Fault injection of the memory model, and its checks of the AXI rules."""


import numpy as np
import pytest
from hotrow_sim.memory import DECERR, SLVERR, Behaviour

from tests.sim.memory.masters import BASE, BUS, POISON, drive_read, drive_write, memory


class TestFaults:
    def test_unmapped(self):
        model, array = memory()
        end = BASE + array.size
        given, _ = drive_read(model.read_port(BUS), [(0, end - BUS, 2), (0, BASE - BUS, 1)])
        assert [response for *_, response, _ in given] == [0, DECERR, DECERR]
        assert given[1][2] == POISON * BUS
        beat = (bytes(BUS), 0xFFFF)
        answers = drive_write(model.write_port(BUS), [(0, end - BUS, [beat] * 2), (0, 0, [beat])])
        assert [response for *_, response in answers] == [DECERR, DECERR]
        assert (array[-BUS:] == 0).all(), "the beat that is mapped lands"

    def test_word_across_the_end_of_an_array(self):
        model, _ = memory()
        small = np.full(8, 3, dtype=np.uint8)
        model.map(small, 0x8004)
        given, _ = drive_read(model.read_port(BUS), [(0, 0x8000, 1)])
        assert given[0][2:4] == (POISON * 4 + bytes([3] * 8) + POISON * 4, 0)
        answers = drive_write(model.write_port(BUS), [
            (0, 0x8000, [(bytes([5] * BUS), 0x0FF0)]), (0, 0x8000, [(bytes([6] * BUS), 0x1FF0)])])
        assert [response for *_, response in answers] == [0, DECERR]
        assert (small == 5).all(), "a beat lands wholly or not at all"

    def test_read_only(self):
        model, array = memory(writable=False)
        before = array.copy()
        answers = drive_write(model.write_port(BUS), [(0, BASE, [(bytes(BUS), 0xFFFF)]),
                                                      (0, BASE, [(bytes(BUS), 0)])])
        assert [response for *_, response in answers] == [SLVERR, 0]
        assert (array == before).all()

    def test_unmap(self):
        model, _ = memory()
        port = model.read_port(BUS)
        drive_read(port, [(0, BASE, 1)])
        model.unmap(BASE)
        given, _ = drive_read(port, [(0, BASE, 1)])
        assert given[0][3] == DECERR

    @pytest.mark.parametrize("beat", [0, 3, 7], ids=["first", "middle", "last"])
    @pytest.mark.parametrize("response", [SLVERR, DECERR])
    @pytest.mark.parametrize("by", ["index", "range"])
    def test_injected(self, beat, response, by):
        model, array = memory()
        before = array.copy()
        read, write = model.read_port(BUS), model.write_port(BUS)
        for port in (read, write):
            if by == "index":
                port.fail_beat(8 + beat, response)
            else:
                port.fail_range(BASE + 128 + BUS * beat + 5, 1, response)
        bursts = [(i, BASE + 128 * i, 8) for i in range(3)]
        given, _ = drive_read(read, bursts)
        assert [r for *_, r, _ in given] == [response * (i == 8 + beat) for i in range(24)]
        answers = drive_write(write, [(id, address, [(bytes(BUS), 0xFFFF)] * beats)
                                      for id, address, beats in bursts])
        assert [r for *_, r in answers] == [0, response, 0]
        failed = slice(128 + BUS * beat, 128 + BUS * (beat + 1))
        assert (array[failed] == before[failed]).all()
        assert array[:384].sum() == before[failed].sum(), "every other beat lands"

    @pytest.mark.parametrize("accept", [False, True])
    def test_missing_and_late_responses(self, accept):
        model, _ = memory()
        read, write = model.read_port(BUS, Behaviour(latency=5)), model.write_port(BUS)
        for port in (read, write):
            port.silence(4, 100, accept)
        given, taken = drive_read(read, [(0, BASE, 4)] * 5)
        assert taken == ([1, 2, 3, 4, 5] if accept else [1, 2, 3, 100, 101])
        assert given[0][0] == 100
        answers = drive_write(write, [(0, BASE, [(bytes(BUS), 0)])] * 6)
        assert [cycle >= 100 for cycle, *_ in answers] == [False] * 2 + [True] * 4

    def test_a_silent_memory_stops_the_address_channel(self):
        model, _ = memory()
        port = model.read_port(BUS)
        port.silence(0)
        with pytest.raises(AssertionError, match="1 beats did not come"):
            drive_read(port, [(0, BASE, 1)], limit=300)
        assert port.statistics.bursts == 0
        port = model.read_port(BUS)
        port.silence(0, accept=True)
        with pytest.raises(AssertionError, match="1 beats did not come"):
            drive_read(port, [(0, BASE, 1)], limit=300)
        assert port.statistics.bursts == 1
        with pytest.raises(AssertionError, match="port 1: something is still in flight"):
            model.check()


class TestRules:
    """Every violation of the master is reported with its cycle; legal traffic is not."""

    @pytest.mark.parametrize("wrong, message", [
        ({"araddr": BASE + 0xFF0, "arlen": 1}, "crosses a 4 KiB boundary .0x10ff0"),
        ({"arburst": 0}, "not INCR"),
        ({"arburst": 2}, "not INCR"),
        ({"arsize": 3}, "beat size is not the bus width"),
        ({"araddr": BASE + 0xFF8, "arlen": 1}, "crosses a 4 KiB boundary"),
    ])
    def test_read_bursts(self, wrong, message):
        model, _ = memory()
        port = model.read_port(BUS)
        for name, value in {"arvalid": 1, "araddr": BASE, "arsize": 4, "arburst": 1,
                            **wrong}.items():
            setattr(port.inputs, name, value)
        port.tick()
        assert not port.violations
        port.tick()
        assert len(port.violations) == 1
        with pytest.raises(AssertionError, match=f"port 0: cycle 1: .*{message}"):
            model.check()

    def test_longest_legal_bursts(self):
        model, _ = memory()
        port = model.read_port(BUS)
        drive_read(port, [(0, BASE, 256), (0, BASE + 0xFF0, 1), (0, BASE + 0x1000, 256)])
        model.check()

    @pytest.mark.parametrize("change", [{"arvalid": 0}, {"araddr": BASE + 64}, {"arid": 1},
                                        {"arlen": 1}])
    def test_address_held(self, change):
        model, _ = memory()
        port = model.read_port(BUS)
        for name, value in {"arvalid": 1, "araddr": BASE, "arsize": 4, "arburst": 1}.items():
            setattr(port.inputs, name, value)
        port.tick()  # not ready in the first cycle
        for name, value in change.items():
            setattr(port.inputs, name, value)
        port.tick()
        assert "address channel changed before it was accepted" in port.violations[0]

    @pytest.mark.parametrize("change", [{"wvalid": 0}, {"wstrb": 1}, {"wlast": 0}, {"wdata": 1}])
    def test_beat_held(self, change):
        model, _ = memory()
        port = model.write_port(BUS)
        port.inputs.wvalid, port.inputs.wlast, port.inputs.wstrb = 1, 1, 0xFFFF
        port.tick()
        for name, value in change.items():
            if name == "wdata":
                port.inputs.wdata[BUS - 1] = value
            else:
                setattr(port.inputs, name, value)
        port.tick()
        assert "W beat changed before it was accepted" in port.violations[0]

    @pytest.mark.parametrize("lasts, late, message", [
        ([1, 0], False, "wlast not on the last beat"),
        ([0, 0], False, "wlast missing"),
        ([1], True, "wlast not on the last beat"),
    ])
    def test_wlast(self, lasts, late, message):
        model, _ = memory()
        port = model.write_port(BUS)
        inputs = port.inputs
        inputs.awaddr, inputs.awlen, inputs.awsize, inputs.awburst = BASE, 1, 4, 1
        port.tick()
        inputs.awvalid = not late
        for last in lasts:
            inputs.wvalid, inputs.wlast = 1, last
            port.tick()
            inputs.awvalid = 0
        inputs.wvalid, inputs.awvalid = 0, late
        port.tick()
        assert message in port.violations[0]

    def test_strobe_below_the_start(self):
        model, _ = memory()
        port = model.write_port(BUS)
        drive_write(port, [(0, BASE + 4, [(bytes(BUS), 0xFFF0)])])
        assert not port.violations
        drive_write(port, [(0, BASE + 4, [(bytes(BUS), 0x0008)])])
        assert "strobe below the first byte" in port.violations[0]

    def test_reset_drops_transfers_in_flight(self):
        model, _ = memory()
        port = model.read_port(BUS, Behaviour(latency=500))
        with pytest.raises(AssertionError, match="did not come"):
            drive_read(port, [(0, BASE, 4)], limit=10)
        assert not port.idle
        port.reset()
        assert port.idle and not port.outputs.arready
