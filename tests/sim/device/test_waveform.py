"""Waveforms: every signal of the list is in the file, and the file shows the command."""

import re

import hotrow
import numpy as np
import pytest
from hotrow_rtl.config import PRESETS
from hotrow_sim.verilated.waveform import signal_groups, write_signal_list


@pytest.mark.parametrize("preset", PRESETS)
def test_the_list_has_every_port(preset, tmp_path):
    config = PRESETS[preset]
    path = write_signal_list(tmp_path / "out.vcd", config)
    text = path.read_text()
    assert path == tmp_path / "out.gtkw" and "out.vcd" in text
    names = [name for names in signal_groups(config).values() for name in names]
    assert len(names) == len(set(names)) and all(f"\n{name}\n" in text for name in names)
    assert f"m_axi_row{config.row_ports - 1}_arvalid" in text
    assert f"m_axi_result{config.result_ports - 1}_awvalid" in text


@pytest.mark.parametrize("name, message", [
    ("out.fst", "ends in .vcd; for FST"), ("nowhere/out.vcd", "No such file")])
def test_names_that_cannot_be_recorded(name, message, tmp_path):
    with pytest.raises(hotrow.TransportError, match=re.escape(message)):
        hotrow.open("sim", preset="tiny", trace=tmp_path / name)


@pytest.mark.long
def test_signals_are_in_the_waveform(tmp_path):
    path = tmp_path / "tiny.vcd"
    with hotrow.open("sim", preset="tiny", trace=path) as device:
        device.register_table(np.zeros((100, 16), np.float32))
        device.split(np.arange(32, dtype=np.uint32)[:, None])
    scope, found = [], {}
    with open(path) as file:
        for words in map(str.split, file):
            match words:
                case ["$scope", _, name, *_]:
                    scope.append(name)
                case ["$upscope", *_]:
                    scope.pop()
                case ["$var", _, _, code, name, *_]:
                    found[".".join([*scope, name])] = code
                case ["$enddefinitions", *_]:
                    break
        changes = file.read()
    names = [name for names in signal_groups(PRESETS["tiny"]).values() for name in names]
    assert set(names) <= set(found), set(names) - set(found)
    completed = found["hotrow.hotrow.registers.queues__0__completed"]
    assert re.search(rf"^b0*1 {re.escape(completed)}$", changes, re.M), "no completed command"
