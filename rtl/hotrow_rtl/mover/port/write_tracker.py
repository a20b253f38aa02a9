"""WriteTracker: match read and write responses with their transfers."""

from amaranth import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from .payloads import burst_response, finished_transfer, read_response, transfer_info


class WriteTracker(wiring.Component):
    """Report when each transfer has landed or failed.

    Attributes
    ----------
    infos : In(stream(transfer_info()))
        Every transfer, in order.
    read_responses : In(stream(read_response()))
        Of every transfer, in order.
    write_responses : In(stream(burst_response()))
        Of each write burst. A transfer with a read fault has no write burst.
    finished : Out(finished_transfer())
        Every transfer, in order, after its last write response.

    Timing
    ------
    Throughput 1 transfer per cycle.
    """

    infos: In(stream.Signature(transfer_info()))
    read_responses: In(stream.Signature(read_response()))
    write_responses: In(stream.Signature(burst_response()))
    finished: Out(finished_transfer())

    def elaborate(self, platform):
        m = Module()
        read, write, finished = self.read_responses.p, self.write_responses, self.finished
        half, half_fault = Signal(), Signal(2)  # of two writes the first has a response
        valid = self.read_responses.valid & self.infos.valid
        read_failed = read.fault != 0
        first_of_two = valid & ~read_failed & read.two_writes & ~half
        m.d.comb += [
            finished.valid.eq(valid & (read_failed | (write.valid & ~first_of_two))),
            finished.written.eq(~read_failed),
            finished.fault.eq(Mux(read_failed, read.fault, Mux(
                half & (half_fault > write.p.fault), half_fault, write.p.fault))),
            finished.info.eq(self.infos.p),
            write.ready.eq(valid & ~read_failed),
            self.read_responses.ready.eq(finished.valid),
            self.infos.ready.eq(finished.valid),
        ]
        with m.If(first_of_two & write.valid):
            m.d.sync += [half.eq(1), half_fault.eq(write.p.fault)]
        with m.Elif(finished.valid):
            m.d.sync += half.eq(0)
        return m
