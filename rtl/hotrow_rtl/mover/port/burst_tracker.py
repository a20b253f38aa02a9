"""BurstTracker: the reads in flight, where their words go, and their responses in order."""

from amaranth import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from ...config import Config
from ...interfaces.records import FAULT_TIMEOUT
from ...primitives.ram import ClearedRam
from ...primitives.skid_buffer import SkidBuffer
from .payloads import buffer_words, burst, burst_response, finished_burst, id_width, tagged_burst


def allocation(config: Config) -> data.StructLayout:
    """Buffer `address` of the first word of burst `id`, if `valid`."""
    return data.StructLayout({
        "valid": 1, "id": id_width(config), "address": range(buffer_words(config))})


class BurstTracker(wiring.Component):
    """Allocate ids and buffer space to bursts and return their responses in order.

    Parameters
    ----------
    config : Config
        `outstanding` ids, allocated round robin.

    Attributes
    ----------
    bursts : In(stream(burst(config)))
    requests : Out(stream(tagged_burst(config)))
    allocations : Out(allocation(config))
        Valid in the cycle before its request appears. The words of a burst have consecutive
        addresses modulo the size of the buffer.
    finished : In(finished_burst(config))
        Ids in any order.
    freed : In(1)
        A word has left the buffer.
    stopped : In(1)
        The port is stopped: bursts without their last beat never end.
    responses : Out(stream(burst_response()))
        The worst fault of each burst, in order; TIMEOUT while the port is stopped.

    Timing
    ------
    Latency 1 cycle from burst to request, 2 from the end of a burst to its response; throughput
    1 burst per cycle. After reset `bursts` is not ready for as many cycles as there are ids,
    at least 2.
    """

    def __init__(self, config: Config):
        self.config = config
        super().__init__({
            "bursts": In(stream.Signature(burst(config))),
            "requests": Out(stream.Signature(tagged_burst(config))),
            "allocations": Out(allocation(config)),
            "finished": In(finished_burst(config)),
            "freed": In(1),
            "stopped": In(1),
            "responses": Out(stream.Signature(burst_response())),
        })

    def elaborate(self, platform):
        m = Module()
        count, words = self.config.outstanding, buffer_words(self.config)
        width = id_width(self.config)
        newest, oldest, second = Signal(width), Signal(width), Signal(width, init=1 % count)
        in_flight_count, in_flight, full = Signal(range(count + 1)), Signal(), Signal()
        response = data.StructLayout({"phase": 1, "fault": 2})
        m.submodules.last_responses = last_responses = ClearedRam(response, 1 << width)
        # A burst allocates its words at once. If `space` becomes negative, its request waits.
        tail, space = Signal(range(words)), Signal(signed(words.bit_length() + 1), init=words)
        pending, fits = Signal(), Signal()
        accept, retire = Signal(), Signal()
        out = self.requests
        burst_words = self.bursts.p.len_minus_1 + 1

        def following(number):
            return Mux(number == count - 1, 0, number + 1)

        m.d.comb += [
            fits.eq(space >= 0),
            out.valid.eq(pending & fits),
            self.bursts.ready.eq(~full & last_responses.ready & (~pending | fits & out.ready)),
            accept.eq(self.bursts.valid & self.bursts.ready),
            self.allocations.valid.eq(accept),
            self.allocations.id.eq(newest),
            self.allocations.address.eq(tail),
        ]
        with m.If(out.valid & out.ready):
            m.d.sync += pending.eq(0)
        with m.If(accept):
            m.d.sync += [
                pending.eq(1),
                out.p.id.eq(newest),
                out.p.burst.eq(self.bursts.p),
                newest.eq(following(newest)),
                tail.eq(tail + burst_words),
            ]

        # Every cycle reads the last response of the oldest burst's id. The response belongs to the
        # oldest burst if its phase matches: the phase of an id alternates with every burst.
        finished, bypass, use_bypass = self.finished, Signal(response), Signal()
        phase, found = Signal(init=1), Signal(response)
        m.d.comb += [
            last_responses.write_enable.eq(finished.valid),
            last_responses.write_address.eq(finished.id),
            last_responses.write_data.phase.eq(finished.phase),
            last_responses.write_data.fault.eq(finished.fault),
            last_responses.read_address.eq(Mux(retire, second, oldest)),
            found.eq(Mux(use_bypass, bypass, last_responses.read_data)),
        ]
        m.d.sync += [  # a write to the address that is read
            use_bypass.eq(
                finished.valid & Mux(retire, finished.id == second, finished.id == oldest)),
            bypass.phase.eq(finished.phase),
            bypass.fault.eq(finished.fault),
        ]
        m.submodules.skid = skid = SkidBuffer(burst_response())
        m.d.comb += [
            retire.eq(skid.i.valid & skid.i.ready),
            skid.i.valid.eq(in_flight & ((found.phase == phase) | self.stopped)),
            skid.i.p.fault.eq(Mux(self.stopped, FAULT_TIMEOUT, found.fault)),
        ]
        connect(m, skid=skid.o, responses=flipped(self.responses))
        with m.If(retire):
            m.d.sync += [
                oldest.eq(second), second.eq(following(second)), phase.eq(phase ^ (second == 0))]
        with m.If(accept ^ retire):
            m.d.sync += [
                in_flight_count.eq(Mux(retire, in_flight_count - 1, in_flight_count + 1)),
                in_flight.eq(~retire | (in_flight_count != 1)),
                full.eq(~retire & (in_flight_count == count - 1)),
            ]
        # Timing: `accept` is late and stays out of the carry chains.
        m.d.sync += space.eq(Mux(accept, space - burst_words + self.freed, space + self.freed))
        return m
