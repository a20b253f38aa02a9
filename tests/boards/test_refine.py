"""Refining a placement: what is computed of it is what nextpnr says, and it becomes better."""

import re
from pathlib import Path

import numpy as np
import pytest
from hotrow_boards.refine.crowd import ROOM, bring, crowd_of
from hotrow_boards.refine.placed import BLOCK_RAM, FLIP_FLOP, LUT, OTHER, RAM_WRITE, Placed
from hotrow_boards.refine.refinement import Refinement
from hotrow_boards.refine.repair import ROUNDS, repair
from hotrow_boards.refine.schedule import STAGES, refine
from hotrow_boards.refine.tiles import NONE, allowed, tiles_of
from hotrow_boards.refine.timing import time_arcs
from hotrow_boards.refine.wires import INSIDE, wires_of
from hotrow_boards.routing import place_and_route
from hotrow_boards.synthesis import map_cells

from tests.boards.real_tools import place_and_route_tools

PERIOD, HARD_PERIOD = 8000, 4000  # ps; the second is more than the design can do
BLOCK_RAMS = 208
DEVICE = ("--um-85k", "--package", "CABGA756", "--speed", "8", "--freq", "125",
          "--lpf-allow-unconstrained")
# Of everything something: carry chains of several tiles, LUT RAM, block RAM, a multiplier, enables
# and resets.
DESIGN = """\
module design(input clk, input rst, input in, output reg out);
  reg [255:0] taps;
  reg [63:0] sum, wide;
  reg [31:0] small [0:15];
  reg [35:0] large [0:511];
  reg [31:0] from_small;
  reg [35:0] from_large, read, product;
  reg [15:0] held;
  always @(posedge clk) begin
    taps <= {taps[254:0], in ^ out};
    sum <= sum + taps[63:0];
    if (taps[7]) wide <= wide - {taps[99:60], taps[31:8]};
    if (taps[100]) small[taps[4:1]] <= taps[131:100];
    from_small <= small[taps[12:9]] ^ sum[31:0];
    if (taps[120]) large[taps[28:20]] <= wide[35:0];
    from_large <= large[taps[48:40]];
    read <= from_large;
    product <= taps[17:0] * taps[217:200];
    if (rst) held <= 0; else if (taps[50]) held <= from_small[15:0] + product[20:5];
    out <= ^{sum, wide, from_small, read, product, held};
  end
endmodule
"""


@pytest.fixture(scope="module")
def placed_design(tmp_path_factory):
    """The folder in which a design has been placed, as `placed-1.json`."""
    place_and_route_tools()
    folder = tmp_path_factory.mktemp("refine")
    (folder / "design.v").write_text(DESIGN)
    map_cells(["read_verilog -sv design.v"], "design", folder)

    class Enough(Exception):
        pass

    def stop(*_):
        raise Enough
    with pytest.raises(Enough):
        place_and_route(folder, 1, *DEVICE, refine=stop)
    return folder


def test_every_kind_of_cell_is_there(placed_design):
    placed = Placed(placed_design / "placed-1.json")
    assert set(placed.kind) == {LUT, FLIP_FLOP, BLOCK_RAM, RAM_WRITE, OTHER}
    assert {placed.mode(cell) for cell in np.flatnonzero(placed.kind == LUT)} == {
        "LOGIC", "CCU2", "DPRAM", "RAMW_BLOCK"}
    tiles = tiles_of(placed, BLOCK_RAMS)
    assert (tiles.length > 8).sum() >= 2 and (tiles.chain != NONE).sum() >= 18  # 64 bits, 8 a tile
    assert tiles.paired.any() and (tiles.polarity != NONE).any()


def test_clock_is_what_nextpnr_estimates(placed_design):
    placed = Placed(placed_design / "placed-1.json")
    wires = wires_of(placed)
    timing = time_arcs(wires, placed.position, PERIOD, direct=0)
    log = (placed_design / "placing-1.log").read_text()
    said = float(re.findall(r"Max frequency for clock +'[^']*': ([\d.]+) MHz", log)[-1])
    assert 1e6 / (PERIOD - timing.worst) == pytest.approx(said, abs=0.01)
    quick = wires.arcs[:, 3].sum()
    time_arcs(wires, placed.position, PERIOD)  # as it is routed, none takes no time
    assert wires.arcs[:, 3].sum() > quick


def test_what_nextpnr_places_is_allowed(placed_design):
    tiles = tiles_of(Placed(placed_design / "placed-1.json"), BLOCK_RAMS)
    assert all(allowed(tiles, tile) for tile in range(len(tiles.place)))
    tile = next(tile for tile in range(len(tiles.place))
                if (tiles.flip_flops[tile, :2] != NONE).all())
    first, _ = tiles.flip_flops[tile, :2]
    for shared in (tiles.enable, tiles.reset):
        kept, shared[first] = shared[first], 10_000
        assert not allowed(tiles, tile)
        shared[first] = kept


def test_nets_of_a_tile_are_counted_once(placed_design):
    placed = Placed(placed_design / "placed-1.json")
    wires, tiles = wires_of(placed), tiles_of(placed, BLOCK_RAMS)
    crowd = crowd_of(wires, placed.kind, placed.position, tiles.at.shape, price=1.0)
    come = {}
    for (_, sink, way, _), net in zip(wires.arcs, wires.arc_net):
        if placed.kind[sink] in (LUT, FLIP_FLOP, RAM_WRITE) and way != INSIDE:
            come.setdefault(tuple(placed.position[sink, :2]), set()).add(net)
    assert {place: len(nets) for place, nets in come.items()} == {
        tuple(place): round(float(crowd.nets[tuple(place)]), 3)
        for place in np.argwhere(crowd.nets)}
    # Where nets are too many, one that comes costs what one that goes saves; elsewhere nothing.
    cell = int(np.argmax(crowd.brings))
    for nets, costs in ((0, 0), (ROOM + 3, 1)):
        place = np.array([1, 1, 0], np.int16)
        crowd.nets[1, 1] = nets
        more = bring(crowd, cell, place, 1)
        assert more == pytest.approx(-bring(crowd, cell, place, -1)) and (more > 0) == costs
        assert crowd.nets[1, 1] == pytest.approx(nets)


def test_refined_it_is_better_and_still_a_placement(placed_design, tmp_path):
    path, out = placed_design / "placed-1.json", tmp_path / "refined.json"
    lines = []
    figures = refine(path, out, 1, HARD_PERIOD, BLOCK_RAMS, lines.append)
    assert figures["after"]["mhz"] > figures["before"]["mhz"] and len(lines) == STAGES + 1

    before, after = Placed(path), Placed(out)
    wires, tiles = wires_of(after), tiles_of(after, BLOCK_RAMS)
    worst = time_arcs(wires, after.position, HARD_PERIOD).worst
    assert round(1e6 / (HARD_PERIOD - worst), 1) == figures["after"]["mhz"]
    # Every cell is somewhere, none where another one is, and what belongs together is.
    assert sorted(after.names) == sorted(before.names)
    places = [after.place_of(cell) for cell in np.flatnonzero(after.kind != OTHER)]
    assert len(set(places)) == len(places)
    assert all(allowed(tiles, tile) for tile in range(len(tiles.place)))
    for cell in np.flatnonzero(tiles.pair != NONE):
        assert (after.position[cell] == after.position[tiles.pair[cell]]).all()
    for first in np.flatnonzero(tiles.length > 0):
        column, row = tiles.place[first]
        run = tiles.at[column:column + tiles.length[first], row]
        assert (tiles.chain[run] == first).all()


def test_repair_keeps_the_soonest_of_its_rounds(placed_design, monkeypatch):
    placed = Placed(placed_design / "placed-1.json")
    refinement = Refinement(placed, 1, HARD_PERIOD, BLOCK_RAMS)
    before, seen = refinement.mhz, []
    anneal = refinement.anneal

    def watched(*arguments, **options):
        done = anneal(*arguments, **options)
        seen.append(refinement.mhz)
        return done

    monkeypatch.setattr(refinement, "anneal", watched)
    repair(refinement)
    assert len(seen) == ROUNDS and refinement.mhz == max(before, *seen) > before
    worst = time_arcs(wires_of(placed), placed.position, HARD_PERIOD).worst
    assert 1e6 / (HARD_PERIOD - worst) == refinement.mhz


def test_repair_leaves_alone_what_is_soon_enough(placed_design):
    placed = Placed(placed_design / "placed-1.json")
    before = placed.position.copy()
    repair(Refinement(placed, 1, 1_000_000, BLOCK_RAMS))
    assert (placed.position == before).all()


def test_the_same_seed_gives_the_same_placement(placed_design, tmp_path):
    files = [tmp_path / name for name in ("one", "other", "third")]
    for file, seed in zip(files, (3, 3, 4)):
        figures = refine(placed_design / "placed-1.json", file, seed, PERIOD, BLOCK_RAMS)
        # Nothing is late: wires become shorter.
        assert figures["after"]["wire_length"] < figures["before"]["wire_length"]
    one, other, third = (file.read_bytes() for file in files)
    assert one == other != third


@pytest.mark.slow
def test_nextpnr_routes_what_is_refined(placed_design):
    def better(placed, refined):
        refine(placed, refined, 2, PERIOD, BLOCK_RAMS)
    report = place_and_route(placed_design, 2, *DEVICE, refine=better)
    (clock,) = report["fmax"].values()
    assert clock["achieved"] > 100


def test_a_cell_without_a_place(tmp_path):
    path = tmp_path / "placed.json"
    path.write_text('{"modules": {"top": {"cells": {"stray": {"type": "TRELLIS_FF", '
                    '"attributes": {}, "parameters": {}, "connections": {}}}}}}')
    with pytest.raises(ValueError, match="cell stray has no place: expected a design that"):
        Placed(Path(path))
