"""A LiteX SoC that counts the accesses to its RAM: `python examples/litex_counts.py DIR`.

The Verilog of the counters is an instance beside the bus. Icarus runs a bench that reads words of
RAM, some more often, then the three most used words from CSRs. Needs `pip install
'hotrow[litedram]'`.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

from hotrow.command import cli
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import wishbone
from litex.soc.interconnect.csr import AutoCSR, CSRStatus, CSRStorage
from litex.soc.interconnect.stream import SyncFIFO
from migen import Cat, ClockDomain, ClockSignal, Constant, If, Instance, Module, ResetSignal, Signal

WISHBONE = {"adr": 30, "dat_w": 32, "dat_r": 32, "sel": 4, "cyc": 1, "stb": 1, "ack": 1, "we": 1,
            "cti": 3, "bte": 2, "err": 1}
PADS = [("clock", 0, Pins(1)), ("reset", 0, Pins(1)), ("wishbone", 0, *(
    Subsignal(name, Pins(bits)) for name, bits in WISHBONE.items()))]


class Counters(Module, AutoCSR):
    """A write of `harvest` lists that many words; a write of `next` goes to the next one."""

    def __init__(self, bus, ram):
        self.harvest = CSRStorage(32, name="harvest")
        self.next = CSRStorage(1, name="next")
        self.word = CSRStatus(32, name="word")
        self.count = CSRStatus(16, name="count")
        self.valid = CSRStatus(1, name="valid")
        # The bus does not wait for the counters.
        self.submodules.accesses = accesses = SyncFIFO([("row", 10)], 64)
        self.comb += [accesses.sink.row.eq(bus.adr),
                      accesses.sink.valid.eq(bus.ack & (bus.adr[10:] == ram.origin >> 12))]
        command, entry, accepted, waiting = Signal(72), Signal(55), Signal(), Signal()
        self.comb += [command[2:34].eq(self.harvest.storage), command[34:66].eq(1),  # HARVEST
                      self.word.status.eq(entry[:32]), self.count.status.eq(entry[37:53])]
        self.sync += If(self.harvest.re, waiting.eq(1)).Elif(accepted, waiting.eq(0))
        self.specials += Instance(
            "hotrow_counters", i_clk=ClockSignal(), i_rst=ResetSignal(), i_restart=0,
            i_lookups_payload=Cat(accesses.source.row, Constant(0, 27), Constant(3, 2)),
            i_lookups_valid=accesses.source.valid, o_lookups_ready=accesses.source.ready,
            i_reports_ready=1, i_ended_ready=1, i_commands_payload=command,
            i_commands_valid=waiting & ~accesses.source.valid,  # after all accesses
            o_commands_ready=accepted, o_harvested_payload=entry,
            o_harvested_valid=self.valid.status, i_harvested_ready=self.next.re)


class CountingSoC(SoCCore):
    """RAM of 4 KiB, the counters, and a Wishbone master outside."""

    def __init__(self, platform):
        super().__init__(platform, int(50e6), cpu_type=None, with_uart=False, with_timer=False,
                         integrated_sram_size=0, integrated_main_ram_size=4096)
        self.clock_domains.cd_sys = ClockDomain()
        self.comb += [self.cd_sys.clk.eq(platform.request("clock")),
                      self.cd_sys.rst.eq(platform.request("reset"))]
        host = wishbone.Interface()
        self.comb += host.connect_to_pads(platform.request("wishbone"), mode="slave")
        self.bus.add_master(name="host", master=host)
        self.counters = Counters(host, self.bus.regions["main_ram"])


BENCH = """\
`timescale 1ns / 1ps
module bench;
  reg clock = 0, reset = 1, active = 0, we = 0;
  reg [29:0] adr = 0; reg [31:0] data = 0; wire [31:0] got; wire ack;
  soc soc(.clock(clock), .reset(reset), .wishbone_adr(adr), .wishbone_dat_w(data),
          .wishbone_dat_r(got), .wishbone_sel(4'hf), .wishbone_cyc(active), .wishbone_stb(active),
          .wishbone_ack(ack), .wishbone_we(we), .wishbone_cti(3'h0), .wishbone_bte(2'h0));
  always #10 clock = ~clock;
  reg [31:0] value; integer word, count;
  task access(input write, input [31:0] address, input [31:0] written); begin
    @(negedge clock) we = write; adr = address >> 2; data = written; active = 1;
    @(posedge clock); while (!ack) @(posedge clock);
    value = got; @(negedge clock) active = 0;
  end endtask
  initial begin
    repeat (100) @(posedge clock); reset = 0; repeat (100) @(posedge clock);
    for (word = 0; word < 6; word = word + 1)
      for (count = 0; count < (40 >> word); count = count + 1) access(0, {ram} + 4 * word, 0);
    access(1, {harvest}, 3);
    for (count = 0; count < 3; count = count + 1) begin
      value = 0; while (!value[0]) access(0, {valid}, 0);
      access(0, {word}, 0); word = value; access(0, {count}, 0);
      $display("word %0d: %0d accesses", word, value); access(1, {next}, 1);
    end
    $finish;
  end
endmodule
"""


def main(folder):
    """Generate the counters, the SoC and its bench, and run them."""
    folder = Path(folder)
    cli.main(["generate", "--unit", "counters", "--set", "lanes=1", "-o", str(folder)])
    platform = SimPlatform("SIM", PADS)
    soc = CountingSoC(platform)
    soc.finalize()
    with contextlib.chdir(folder):  # with the RAM's contents beside it
        platform.get_verilog(soc, name="soc").write("soc.v")
    csrs = soc.csr_regions["counters"]
    places = {each.name: f"32'h{csrs.origin + 4 * number:x}"
              for number, each in enumerate(csrs.obj)}
    ram = f"32'h{soc.bus.regions['main_ram'].origin:x}"
    bench = BENCH
    for name, place in {**places, "ram": ram}.items():
        bench = bench.replace(f"{{{name}}}", place)
    (folder / "bench.v").write_text(bench)
    subprocess.run(["iverilog", "-g2012", "-s", "bench", "-o", "run", "bench.v", "soc.v",
                    "hotrow_counters.v"], cwd=folder, check=True)
    subprocess.run(["vvp", "-n", "run"], cwd=folder, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
