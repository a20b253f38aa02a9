"""The open flow for a Xilinx FPGA of the 7 series: Yosys, nextpnr-xilinx and Project X-Ray."""

# Modules are mapped to gates one by one, which takes minutes where one flat netlist takes hours.
# `abc9`, which `synth_xilinx` uses, did not finish one module of the widest card in 15 minutes.
MAPPING = """\
synth_xilinx {options} -nowidelut -top {top} -run begin:map_luts
opt_expr -mux_undef -noclkinv
opt_merge
abc -lut 6
techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6
opt_clean -purge
"""


def synthesis(top: str, sources: list[str], options: str = "") -> str:
    """A script of Yosys that writes the flat netlist `TOP.json`.

    Parameters
    ----------
    top : str
        Module of the design.
    sources : list of str
        Its files.
    options : str
        Further ones of `synth_xilinx`.
    """
    options = f"-family xc7 {options}".strip()
    return (f"read_verilog -sv {' '.join(sources)}\n"
            + MAPPING.format(options=options, top=top) + f"""\
flatten
opt_clean -purge
synth_xilinx {options} -nowidelut -top {top} -run finalize:edif
write_json {top}.json
""")


def makefile(top: str, part: str, constraints: str, title: str) -> str:
    """A makefile from `synthesis.ys` to the bitstream.

    Parameters
    ----------
    top : str
        Module of the design.
    part : str
        Part number with package and speed grade.
    constraints : str
        File of the pins.
    title : str
        The design and its board.
    """
    return f"""\
# The bitstream of {title}, by openXC7. It has not been run.
#   make HARD_BLOCK=FOLDER CHIPDB=FILE PRJXRAY_DB=FOLDER
# HARD_BLOCK has the Verilog of the module pcie_s7, PCI Express in the FPGA: Vivado writes it for
# the settings in build.tcl. CHIPDB and PRJXRAY_DB: files of nextpnr and of Project X-Ray.
# nextpnr knows no asynchronous clocks: it reports paths between those of card and link, too.
PART = {part}
TOP = {top}
HARD_BLOCK ?= pcie_s7
CHIPDB ?= $(firstword $(subst -, ,$(PART))).bin
PRJXRAY_DB ?= prjxray-db/artix7

.DELETE_ON_ERROR:
$(TOP).bit: $(TOP).frames
\txc7frames2bit --part_file $(PRJXRAY_DB)/$(PART)/part.yaml --part_name $(PART) \\
\t  --frm_file $< --output_file $@
$(TOP).frames: $(TOP).fasm
\tfasm2frames --part $(PART) --db-root $(PRJXRAY_DB) $< > $@
$(TOP).fasm: $(TOP).json {constraints}
\tnextpnr-xilinx --chipdb $(CHIPDB) --xdc {constraints} --json $< --fasm $@
$(TOP).json: synthesis.ys $(wildcard *.v)
\tyosys -q -s $< $(wildcard $(HARD_BLOCK)/*.v)
"""
