"""BeatMultiplyAdd: the fused multiply-adds of the sums and of the steps."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import ArithmeticUnits
from ..float.fma import FusedMultiplyAdd


def multiply_add(config: ArithmeticUnits) -> data.StructLayout:
    """A `factor`, and for each lane of a beat a value and an addend."""
    return data.StructLayout({
        "factor": 32, "values": config.bus_width, "addends": config.bus_width})


class MultiplyAddPort(wiring.Signature):
    """factor * value + addend for each lane, ``FusedMultiplyAdd.latency`` cycles later."""

    def __init__(self, config: ArithmeticUnits):
        super().__init__({
            "operands": Out(stream.Signature(multiply_add(config), always_ready=True)),
            "results": In(config.bus_width),
        })


class BeatMultiplyAdd(wiring.Component):
    """Multiply and add the beats of one or two clients.

    With several lanes each client has units of its own. With one lane both share one unit, as the
    rows that they read arrive as fast as one unit processes them.

    Parameters
    ----------
    config : ArithmeticUnits
    clients : int, optional

    Attributes
    ----------
    clients : In(MultiplyAddPort(config)).array(clients)
        With one lane at most one sends a beat in a cycle.

    Timing
    ------
    Latency ``FusedMultiplyAdd.latency`` cycles, one beat per cycle.
    """

    def __init__(self, config: ArithmeticUnits, clients=2):
        self.config = config
        super().__init__({"clients": In(MultiplyAddPort(config)).array(clients)})

    def elaborate(self, platform):
        m = Module()
        if self.config.lanes == 1 and len(self.clients) == 2:
            first, second = self.clients
            operands = Signal(multiply_add(self.config))
            m.d.comb += operands.eq(
                Mux(second.operands.valid, second.operands.p, first.operands.p))
            results = self._units(
                m, "", first.operands.valid | second.operands.valid, operands)
            m.d.comb += [client.results.eq(results) for client in self.clients]
        else:
            for number, client in enumerate(self.clients):
                m.d.comb += client.results.eq(self._units(
                    m, f"{number}_", client.operands.valid, client.operands.p))
        return m

    def _units(self, m, name, valid, operands):
        """Results of a unit for each lane."""
        results = []
        for lane in range(self.config.lanes):
            m.submodules[f"unit{name}{lane}"] = unit = FusedMultiplyAdd()
            m.d.comb += [
                unit.operands.valid.eq(valid),
                unit.operands.p.a.eq(operands.factor),
                unit.operands.p.b.eq(operands.values.word_select(lane, 32)),
                unit.operands.p.c.eq(operands.addends.word_select(lane, 32)),
            ]
            results.append(unit.results.p)
        return Cat(results)
