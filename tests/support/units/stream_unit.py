"""One component with a few streams, Verilated or in Amaranth's simulator."""

import ctypes
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
from amaranth import Cat, Module, Value
from amaranth.hdl import Const
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.emit.component import to_verilog
from hotrow_sim.verilated.compilation import model_library

from ..benches.stream_bench import StreamBench

HARNESS = Path(__file__).with_name("stream_unit.cpp")
INPUTS, OUTPUTS = 4, 2
PAYLOAD_BITS, SETTING_BITS = 640, 128
WORDS = PAYLOAD_BITS // 32
SETTLE_CYCLES = 8  # from the settings to the first payload


class FlatStreams(wiring.Component):
    """Streams of a component as ports of one width.

    Parameters
    ----------
    unit : wiring.Component
    settings, inputs, outputs : sequence of str
        Names of constant inputs, the first in the lowest bits, and of streams.
    """

    def __init__(self, unit, settings, inputs, outputs):
        self.unit, self.settings, self.inputs, self.outputs = unit, settings, inputs, outputs
        ports = {"setting": In(SETTING_BITS)}
        for kind, count, flow, back in (("i", INPUTS, In, Out), ("o", OUTPUTS, Out, In)):
            for number in range(count):
                ports[f"{kind}{number}_payload"] = flow(PAYLOAD_BITS)
                ports[f"{kind}{number}_valid"] = flow(1)
                ports[f"{kind}{number}_ready"] = back(1)
        super().__init__(ports)

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self.unit
        m.d.comb += Cat(Value.cast(getattr(unit, name)) for name in self.settings).eq(self.setting)
        for number, name in enumerate(self.inputs):
            port = getattr(unit, name)
            m.d.comb += [
                Value.cast(port.payload).eq(getattr(self, f"i{number}_payload")),
                port.valid.eq(getattr(self, f"i{number}_valid")),
                getattr(self, f"i{number}_ready").eq(port.ready),
            ]
        for number, name in enumerate(self.outputs):
            port = getattr(unit, name)
            m.d.comb += [
                getattr(self, f"o{number}_payload").eq(Value.cast(port.payload)),
                getattr(self, f"o{number}_valid").eq(port.valid),
            ]
            if not isinstance(port.ready, Const):
                m.d.comb += port.ready.eq(getattr(self, f"o{number}_ready"))
        return m


@dataclass
class StreamRun:
    """Results of a run.

    Attributes
    ----------
    words : list of uint32[n, WORDS]
        Payloads of each output.
    in_cycles, out_cycles, valid_cycles : list of int64[n]
        Cycle in which each payload of each input and of each output was transferred, and in which
        each payload of each output was first valid.
    complete : bool
        All payloads were transferred within the limit.
    """

    words: list
    in_cycles: list
    out_cycles: list
    valid_cycles: list
    complete: bool

    @property
    def payloads(self):
        """The payloads of each output as lists of int."""
        return [[int.from_bytes(each.tobytes(), "little") for each in words]
                for words in self.words]


class StreamUnit:
    """A Verilated component; parameters as for `FlatStreams`.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
    """

    def __init__(self, unit, settings, inputs, outputs):
        text = to_verilog(FlatStreams(unit, settings, inputs, outputs), "unit")
        self._library = _load(text)
        self._handle = ctypes.c_void_p(self._library.hotrow_stream_open())

    def __del__(self):
        if hasattr(self, "_handle"):
            self._library.hotrow_stream_close(self._handle)

    def run(self, settings, given, counts, gaps=None, pauses=None, limit=1_000_000) -> StreamRun:
        """Reset the component and run its streams.

        Parameters
        ----------
        settings : int
            Bits of the settings.
        given : sequence of (sequence of int or uint32[n, WORDS])
            Bits of the payloads of each input.
        counts : sequence of int
            Payloads to accept from each output.
        gaps, pauses : sequence of sequence of int, optional
            Idle cycles before each payload of each input, and cycles without `ready` before each
            payload of each output; repeated as needed, default none.
        limit : int
            Cycles after which the run ends incomplete.

        Raises
        ------
        AssertionError
            If a payload changed or vanished while it was stalled.
        """
        given = [*given, *[[]] * (INPUTS - len(given))]
        counts = [*counts, *[0] * (OUTPUTS - len(counts))]
        payloads = [each if isinstance(each, np.ndarray) else _to_words(each) for each in given]
        in_counts = [len(each) for each in given]
        in_cycles = [np.zeros(count + 1, np.uint64) for count in in_counts]
        gaps = [_repeated(gaps, number, count) for number, count in enumerate(in_counts)]
        out = [np.zeros((count + 1, WORDS), np.uint32) for count in counts]
        out_cycles, valid_cycles = (
            [np.zeros(count + 1, np.uint64) for count in counts] for _ in range(2))
        pauses = [_repeated(pauses, number, count) for number, count in enumerate(counts)]
        sent, received = np.zeros(INPUTS, np.uint64), np.zeros(OUTPUTS, np.uint64)
        wrong = self._library.hotrow_stream_run(
            self._handle, _pointer(np.frombuffer(settings.to_bytes(16, "little"), np.uint32)),
            ctypes.c_uint64(limit), _pointer(np.array(in_counts, np.uint64)), _pointers(payloads),
            _pointers(gaps), _pointers(in_cycles), _pointer(sent),
            _pointer(np.array(counts, np.uint64)), _pointers(out), _pointers(pauses),
            _pointers(out_cycles), _pointers(valid_cycles), _pointer(received))
        if wrong:
            raise AssertionError(f"output {wrong - 1}: payload {received[wrong - 1]} changed or "
                                 "vanished before it was accepted")
        received, sent = received.astype(int).tolist(), sent.astype(int).tolist()
        return StreamRun(
            [words[:count] for words, count in zip(out, received, strict=True)],
            _cut(in_cycles, sent), _cut(out_cycles, received), _cut(valid_cycles, received),
            received == counts and sent == in_counts)


class SimulatedUnit:
    """A component in Amaranth's simulator, which needs no build and is slow; the interface of
    `StreamUnit`."""

    def __init__(self, unit, settings, inputs, outputs):
        self.unit, self.settings, self.inputs, self.outputs = unit, settings, inputs, outputs

    def run(self, settings, given, counts, gaps=None, pauses=None, limit=10_000):
        """See `StreamUnit.run`; raises AssertionError at the limit."""
        bench, ports = StreamBench(self.unit), []
        for name in self.settings:
            port = Value.cast(getattr(self.unit, name))
            ports.append((port, settings & (1 << len(port)) - 1))
            settings >>= len(port)

        async def prepare(ctx):
            for port, value in ports:
                ctx.set(port, value)
        bench.process("settings", prepare)
        in_cycles, valid_cycles = [[] for _ in given], [[] for _ in counts]
        for number, (name, payloads) in enumerate(zip(self.inputs, given, strict=True)):
            bench.process(f"source {name}", self._source(
                bench, getattr(self.unit, name), payloads, gaps[number] if gaps else (0,),
                in_cycles[number]))
        out = [bench.sink(getattr(self.unit, name), count, pauses[number] if pauses else (0,),
                          name, lambda payload: (bench.cycles, _bits(payload)),
                          valid_cycles[number])
               for number, (name, count) in enumerate(zip(self.outputs, counts, strict=True))]
        bench.run(limit)
        cycles = [[[at for at, _ in each] for each in out], valid_cycles]
        words = [_to_words([bits for _, bits in each])[:len(each)] for each in out]
        return StreamRun(words, _cut(in_cycles), *map(_cut, cycles), True)

    def _source(self, bench, port, payloads, gaps, in_cycles):
        payload = Value.cast(port.payload)

        async def drive(ctx):
            for _ in range(SETTLE_CYCLES if self.settings else 0):
                await ctx.tick()
            for bits, gap in zip(payloads, cycle(gaps), strict=False):
                for _ in range(gap):
                    await ctx.tick()
                ctx.set(payload, bits)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                in_cycles.append(bench.cycles)
                ctx.set(port.valid, 0)
                ctx.set(payload, (1 << len(payload)) - 1)
        return drive


def _bits(payload):
    return payload if isinstance(payload, int) else payload.as_bits()


def _to_words(payloads):
    """Payloads as uint32[n, WORDS], with a row of zeros if there are none."""
    octets = b"".join(int(each).to_bytes(4 * WORDS, "little") for each in payloads)
    return np.frombuffer(octets or bytes(4 * WORDS), np.uint32).reshape(-1, WORDS)


def _repeated(pattern, number, count):
    pattern = pattern[number] if pattern and number < len(pattern) else (0,)
    return np.resize(np.array(pattern, np.uint32), count + 1)


def _cut(cycles, counts=None):
    counts = [None] * len(cycles) if counts is None else counts
    return [np.array(each[:count], np.int64) for each, count in zip(cycles, counts, strict=True)]


def _pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def _pointers(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


@cache
def _load(text):
    library = ctypes.CDLL(str(model_library("streams", "unit", text, HARNESS)))
    library.hotrow_stream_open.restype = ctypes.c_void_p
    return library
