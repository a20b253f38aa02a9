"""The accelerator for Vivado: a script for synthesis out of context, and constraints."""

from ..config import Config
from ..emit.verilog import TOP_MODULE, emit

U55C = "xcu55c-fsvh2892-2L-e"


def vivado_files(config: Config) -> dict[str, str]:
    """`synthesise.tcl`, `clock.xdc` and the Verilog."""
    verilog = f"{config.name}.v"
    period = 1000 / config.clock_mhz
    script = f"""\
# Synthesise hotrow, configuration {config.name}, out of context, and report its resources.
#   vivado -mode batch -source synthesise.tcl -tclargs ?part?
# Written by `hotrow generate --format vivado`.
set part [expr {{[llength $argv] > 0 ? [lindex $argv 0] : "{U55C}"}}]
set here [file dirname [file normalize [info script]]]
read_verilog -sv [file join $here {verilog}]
read_xdc -mode out_of_context [file join $here clock.xdc]
synth_design -top {TOP_MODULE} -part $part -mode out_of_context
opt_design
report_utilization -hierarchical -hierarchical_depth 3 -file utilization.txt
report_timing_summary -file timing.txt
write_checkpoint -force {TOP_MODULE}.dcp
"""
    constraints = f"""\
# {config.clock_mhz} MHz, the clock of the preset.
create_clock -name clk -period {period:.3f} [get_ports clk]
"""
    return {"synthesise.tcl": script, "clock.xdc": constraints, verilog: emit(config)}
