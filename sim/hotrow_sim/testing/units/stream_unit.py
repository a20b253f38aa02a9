"""A component with a few streams alone, Verilated, for many payloads of many bits."""

import ctypes
import functools
import json
import tempfile
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
from amaranth import Cat, Module, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from hotrow_rtl.emit.verilog_passes import share_modules

from ...memory.library import cache_folder, compiler
from ...verilated import cache
from ...verilated.compilation import COMPILER_FLAGS, VERILATOR_FLAGS, private_symbols, run_tool
from ...verilated.toolchain import find_verilator
from ..benches.stream_bench import StreamBench
from ..cosim.component import component_verilog

HARNESS = Path(__file__).with_name("stream_unit.cpp")
INPUTS, OUTPUTS = 4, 2
PAYLOAD_BITS, SETTING_BITS = 640, 128
WORDS = PAYLOAD_BITS // 32


class FlatStreams(wiring.Component):
    """Streams of a component as ports of one width.

    Parameters
    ----------
    unit : wiring.Component
    settings, inputs, outputs : sequence of str
        Names of its members: of ports that are set once, the first lowest, and of streams.
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
                port.ready.eq(getattr(self, f"o{number}_ready")),
            ]
        return m


@dataclass
class Taken:
    """What came out: `payloads` and `cycles` of each output, and `given_at` of each input."""

    payloads: list
    cycles: list
    given_at: list
    complete: bool


class StreamUnit:
    """A component, Verilated; the parameters of `FlatStreams`.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
        As those of a device.
    """

    def __init__(self, unit, settings, inputs, outputs):
        self.flat = FlatStreams(unit, settings, inputs, outputs)
        self._library = _load(self.flat)
        self._handle = ctypes.c_void_p(self._library.hotrow_stream_open())

    def __del__(self):
        if hasattr(self, "_handle"):
            self._library.hotrow_stream_close(self._handle)

    def run(self, settings, given, counts, gaps=None, pauses=None, limit=1_000_000):
        """Reset the component and run its streams.

        Parameters
        ----------
        settings : int
            Bits of the settings.
        given : sequence of sequence of int
            Bits of the payloads of each input.
        counts : sequence of int
            Payloads to take from each output.
        gaps, pauses : sequence of sequence of int, optional
            Idle cycles before each payload of each input, deaf cycles before each output, over
            and over; default none.
        limit : int
            Cycles after which it ends incomplete.

        Returns
        -------
        Taken

        Raises
        ------
        AssertionError
            If a payload changed or vanished before it was taken.
        """
        given = [*given, *[[]] * (INPUTS - len(given))]
        counts = [*counts, *[0] * (OUTPUTS - len(counts))]
        payloads = [_to_words(each) for each in given]
        given_at = [np.zeros(len(each) + 1, np.uint64) for each in given]
        gaps = [_repeated(gaps, number, len(each)) for number, each in enumerate(given)]
        taken = [np.zeros((count + 1, WORDS), np.uint32) for count in counts]
        taken_at = [np.zeros(count + 1, np.uint64) for count in counts]
        pauses = [_repeated(pauses, number, count) for number, count in enumerate(counts)]
        sent, came = np.zeros(INPUTS, np.uint64), np.zeros(OUTPUTS, np.uint64)
        wrong = self._library.hotrow_stream_run(
            self._handle, _address(np.frombuffer(settings.to_bytes(16, "little"), np.uint32)),
            ctypes.c_uint64(limit), _address(np.array([len(each) for each in given], np.uint64)),
            _addresses(payloads), _addresses(gaps), _addresses(given_at), _address(sent),
            _address(np.array(counts, np.uint64)), _addresses(taken), _addresses(pauses),
            _addresses(taken_at), _address(came))
        if wrong:
            raise AssertionError(f"output {wrong - 1}: payload {came[wrong - 1]} changed or "
                                 "vanished before it was taken")
        complete = list(came) == counts and list(sent) == [len(each) for each in given]
        outputs = [[int.from_bytes(each.tobytes(), "little") for each in words[:int(count)]]
                   for words, count in zip(taken, came)]
        return Taken(outputs, [at[:int(count)].astype(np.int64)
                               for at, count in zip(taken_at, came)],
                     [at[:int(count)].astype(np.int64) for at, count in zip(given_at, sent)],
                     complete)


class SimulatedUnit:
    """The same in Amaranth's simulator: no build, but slow. Gaps and pauses are not repeated."""

    def __init__(self, unit, settings, inputs, outputs):
        self.unit, self.settings, self.inputs, self.outputs = unit, settings, inputs, outputs

    def run(self, settings, given, counts, gaps=None, pauses=None, limit=10_000):
        """As of `StreamUnit`; fails if it ends incomplete."""
        bench, ports = StreamBench(self.unit), []
        for name in self.settings:
            port = Value.cast(getattr(self.unit, name))
            ports.append((port, settings & (1 << len(port)) - 1))
            settings >>= len(port)

        async def prepare(ctx):
            for port, value in ports:
                ctx.set(port, value)
        bench.process("settings", prepare)
        given_at = [[] for _ in given]
        for number, (name, payloads) in enumerate(zip(self.inputs, given)):
            gap = gaps[number] if gaps else (0,)
            bench.process(f"source {name}", self._source(
                bench, getattr(self.unit, name), payloads, gap, given_at[number]))
        taken = [bench.sink(getattr(self.unit, name), count, pauses[number] if pauses else (0,),
                            name, lambda payload: (bench.cycles, _bits(payload)))
                 for number, (name, count) in enumerate(zip(self.outputs, counts))]
        bench.run(limit)
        return Taken([[bits for _, bits in each] for each in taken],
                     [np.array([at for at, _ in each], np.int64) for each in taken],
                     [np.array(each, np.int64) for each in given_at], True)

    @staticmethod
    def _source(bench, port, payloads, gaps, given_at):
        async def drive(ctx):
            for _ in range(8):
                await ctx.tick()
            for payload, gap in zip(payloads, cycle(gaps)):
                for _ in range(gap):
                    await ctx.tick()
                ctx.set(Value.cast(port.payload), payload)
                ctx.set(port.valid, 1)
                await ctx.tick().until(port.ready)
                given_at.append(bench.cycles)
                ctx.set(port.valid, 0)
        return drive


def _bits(payload):
    return payload if isinstance(payload, int) else payload.as_bits()


def _to_words(payloads):
    octets = b"".join(int(each).to_bytes(4 * WORDS, "little") for each in payloads)
    return np.frombuffer(octets or bytes(4), np.uint32)


def _repeated(pattern, number, count):
    pattern = pattern[number] if pattern and number < len(pattern) else (0,)
    return np.resize(np.array(pattern, np.uint32), count + 1)


def _address(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def _addresses(arrays):
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def _load(flat):
    text = share_modules(component_verilog(flat, "unit"))
    return _library(text)


@functools.cache
def _library(text):
    verilator, command = find_verilator(), compiler()
    name = cache.digest(text, verilator.version, command, VERILATOR_FLAGS, COMPILER_FLAGS, HARNESS)
    path = cache_folder() / f"streams-{name}.so"
    with cache.locked(path):
        if not path.is_file():
            cache.publish(path, lambda target: _compile(text, target, verilator, command))
    library = ctypes.CDLL(str(path))
    library.hotrow_stream_open.restype = ctypes.c_void_p
    return library


def _compile(verilog, library, verilator, command):
    with tempfile.TemporaryDirectory(prefix="hotrow-") as folder:
        folder = Path(folder)
        (folder / "unit.v").write_text(verilog)
        run_tool([verilator.program, "--cc", folder / "unit.v", "--Mdir", folder,
                  "--prefix", "Vunit", "--top-module", "unit", "--make", "json",
                  "-fno-inline", *VERILATOR_FLAGS], verilator.environment())
        listed = json.loads((folder / "Vunit.json").read_text())["sources"]
        sources = [path for kind, paths in listed.items() if kind != "deps"
                   for path in paths if path.endswith(".cpp")]
        include = verilator.root / "include"
        run_tool([*command, *COMPILER_FLAGS, *private_symbols(command), "-O0", "-shared",
                  f"-I{folder}", f"-I{include}", f"-I{include / 'vltstd'}", "-o", library,
                  HARNESS, *sources])
