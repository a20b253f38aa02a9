"""The signals of a waveform to look at first, as a save file of GTKWave."""

from pathlib import Path

from hotrow_rtl.contract.encoding import QUEUES
from vcd.gtkw import GTKWSave

READ = ("arvalid", "arready", "araddr", "arlen", "rvalid", "rready", "rlast", "rresp")
WRITE = ("awvalid", "awready", "awaddr", "awlen", "wvalid", "wready", "wlast", "bvalid", "bready",
         "bresp")
LITE = ("awvalid", "awready", "awaddr", "wdata", "bvalid", "arvalid", "arready", "araddr", "rvalid",
        "rdata")
INDICES = ("doorbell", "tail", "head", "submitted", "completed")


def signal_groups(config) -> dict[str, list[str]]:
    """Names of signals by group: clock, command queues, host registers, every AXI4 port."""
    def port(name, channels):
        return [f"hotrow.m_axi_{name}_{channel}" for channel in channels]

    groups = {"clock": ["hotrow.clk", "hotrow.rst", "hotrow.hotrow.cycle"]}
    for at, queue in enumerate(QUEUES):
        groups[f"{queue} queue"] = [f"hotrow.hotrow.registers.queues__{at}__{index}"
                                    for index in INDICES]
    groups["host registers"] = [f"hotrow.s_axil_{channel}" for channel in LITE]
    groups["list port"] = port("list", READ)
    for at in range(config.row_ports):
        groups[f"row port {at}"] = port(f"row{at}", READ + WRITE)
    for at in range(config.result_ports):
        groups[f"result port {at}"] = port(f"result{at}", WRITE)
    return groups


def write_signal_list(trace, config) -> Path:
    """Write the save file beside a waveform: `tiny.gtkw` for `tiny.vcd`.

    Raises
    ------
    ValueError
        If the name does not end in .vcd, the only format that is recorded.
    """
    trace = Path(trace)
    if trace.suffix != ".vcd":
        raise ValueError(f"trace={str(trace)!r}: expected a name that ends in .vcd; for FST "
                         "convert that file with vcd2fst of GTKWave")
    path = trace.with_suffix(".gtkw")
    with open(path, "w") as file:
        save = GTKWSave(file)
        save.dumpfile(trace.name, abspath=False)
        for group, names in signal_groups(config).items():
            with save.group(group, closed=group.startswith(("row", "result"))):
                for name in names:
                    save.trace(name)
    return path
