"""Timing diagrams of units, from sampled ports."""

import pytest
from hotrow_sim.bench.timing import svg, wavejson

PORTS = {port["name"]: port for port in (
    {"name": "keys_payload", "bits": 6, "fields": [{"name": "row", "offset": 2, "bits": 4}]},
    {"name": "keys_valid", "bits": 1, "fields": []},
    {"name": "keys_ready", "bits": 1, "fields": []},
    {"name": "quiet_valid", "bits": 1, "fields": []},
    {"name": "restart", "bits": 1, "fields": []})}
CYCLES = [dict(zip(("keys_valid", "keys_ready", "keys_payload", "restart"), values, strict=True),
               quiet_valid="0")
          for values in (("0", "0", "XXXXXX", "0"), ("1", "0", "001101", "0"),
                         ("1", "1", "001101", "0"), ("1", "1", "101001", "0"),
                         ("0", "Z", "101001", "1"))]


def test_a_diagram_has_the_active_streams():
    """Payloads while they are valid, levels that are neither 0 nor 1, and pulses."""
    assert wavejson(PORTS, CYCLES, "unit") == {
        "signal": [
            {"name": "clk", "wave": "p...."}, {},
            ["keys", {"name": "valid", "wave": "01..0"}, {"name": "ready", "wave": "0.1.x"},
             {"name": "row", "wave": "x=.=x", "data": ["3", "a"]}],
            {}, {"name": "restart", "wave": "0...1"}],
        "head": {"text": "unit", "tick": 0}}


def test_the_image_has_the_shapes_that_it_uses():
    pytest.importorskip("wavedrom", reason="pip install 'hotrow[packages]'")
    text = svg(wavejson(PORTS, CYCLES, "unit"))
    assert text.startswith("<svg") and text.endswith("</svg>\n") and ">keys<" in text
    assert 'id="pclk"' in text and 'id="socket"' not in text
