"""The generated controller inside a larger design, as an instance of its Verilog."""

from amaranth import ClockSignal, Instance, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from .controller import MODULE, PORT, Controller
from .memory import bus_of


class DramCore(wiring.Component):
    """What answers a card's `DramBus`; the text of `Controller.verilog` must come with the design.

    Parameters
    ----------
    controller : Controller
    pins : dict
        Other arguments of the instance: those of the chips, of the clocks and of their reset.
        None in a simulation, whose chips are inside and whose clock is the card's.

    Members
    -------
    bus : In(DramBus)
    """

    def __init__(self, controller: Controller, pins: dict | None = None):
        self.controller = controller
        self.pins = {"i_clk": ClockSignal(), "i_sim_trace": 0} if pins is None else pins
        super().__init__({"bus": In(bus_of(controller))})

    def elaborate(self, platform):
        m = Module()
        bus, wires = self.bus, {}
        for half in (bus.read, bus.write):
            for (name,), member, value in half.signature.flatten(half):
                driven = member.flow is not In
                wires[f"{'o' if driven else 'i'}_user_port_{PORT}_{name}"] = value
        control = bus.control
        m.submodules.core = Instance(
            MODULE, **self.pins, **wires,
            i_wb_ctrl_adr=control.adr, i_wb_ctrl_dat_w=control.dat_w, i_wb_ctrl_we=control.we,
            i_wb_ctrl_cyc=control.cyc, i_wb_ctrl_stb=control.stb, i_wb_ctrl_sel=0b1111,
            i_wb_ctrl_cti=0, i_wb_ctrl_bte=0,
            o_wb_ctrl_dat_r=control.dat_r, o_wb_ctrl_ack=control.ack)
        return m
