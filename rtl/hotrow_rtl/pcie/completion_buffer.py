"""CompletionBuffer: the data of reads in flight, whatever the order of their completions."""

from amaranth import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import log2
from ..primitives.ram import Ram
from .completion_receiver import completion_beat
from .layouts import (
    DWORD,
    LARGEST,
    TAG_BITS,
    TAGS,
    Cause,
    CompletionStatus,
    Fmt,
    Type,
    completion_header,
)
from .read_issuer import LOWER_BITS, issued_read


class CompletionBuffer(wiring.Component):
    """Check each completion against its request, and store its words in the place of its tag.

    A completion is dropped if it is locked, or its tag is not in flight, or its byte count, lower
    address or length are not those of the request's next part, or its payload has another length
    than its header says. A status other than success ends the request.

    Parameters
    ----------
    bus_bytes : int
        8 or 16.

    Attributes
    ----------
    completions : In(completion_beat)
    issued : In(issued_read)
    refused : In(stream(TAG_BITS))
        Tags whose requests were not sent: they fail as unsupported.
    in_flight : In(TAGS)
    completed : Out(1), completed_tag : Out(TAG_BITS)
        See `TagPool`.
    causes : Out(Cause of each tag)
        Valid once the tag is completed.
    read_enable, read_address : In
    read_data : Out
        See `Ram`; a tag has `LARGEST` bytes, and tag and word form the address.

    Timing
    ------
    `completed` comes 1 cycle after the completion's last step, whose data can be read in the next.
    """

    def __init__(self, bus_bytes):
        self.bus_bytes, self.words = bus_bytes, LARGEST // bus_bytes
        super().__init__({
            "completions": In(completion_beat(8 * bus_bytes)),
            "issued": In(issued_read(bus_bytes)),
            "refused": In(stream.Signature(TAG_BITS)),
            "in_flight": In(TAGS),
            "completed": Out(1),
            "completed_tag": Out(TAG_BITS),
            "causes": Out(data.ArrayLayout(Cause, TAGS)),
            "read_enable": In(1),
            "read_address": In(range(TAGS * self.words)),
            "read_data": Out(8 * bus_bytes),
        })

    def elaborate(self, platform):
        m = Module()
        bus_bytes, issued, step = self.bus_bytes, self.issued, self.completions
        # What is still to come of a tag: words, minus one, and the lower bits of the address.
        expected = data.StructLayout({"len_minus_1": range(self.words), "lower": LOWER_BITS,
                                      "offset": range(self.words)})
        m.submodules.words = words = Ram(8 * bus_bytes, TAGS * self.words, block=True)
        m.submodules.starts = starts = Ram(expected, TAGS)
        m.submodules.rests = rests = Ram(expected, TAGS)
        begun = Signal(TAGS)  # the tag's first part has come: `rests` applies
        m.d.comb += [
            starts.write_enable.eq(issued.valid),
            starts.write_address.eq(issued.tag),
            starts.write_data.len_minus_1.eq(issued.len_minus_1),
            starts.write_data.lower.eq(issued.lower),
            starts.read_address.eq(step.header.tag),
            rests.read_address.eq(step.header.tag),
            words.read_enable.eq(self.read_enable),
            words.read_address.eq(self.read_address),
            self.read_data.eq(words.read_data),
        ]

        # The header is compared in the cycle after `opens`; a part that ends in that cycle bypasses
        # the memory.
        opens, closes, has_word = Signal(), Signal(), Signal()
        word, header = Signal.like(step.word), Signal(completion_header)
        bypass, use_bypass = Signal(expected), Signal()
        # Timing: what the header alone decides is registered with it. Sizes are in words, minus 1.
        continues, whole = Signal(), Signal()
        length_minus_1, left_minus_1 = Signal(len(header.length)), Signal(len(header.byte_count))
        given_length, given_left = step.header.length, step.header.byte_count
        ends_now = rests.write_enable & (rests.write_address == rests.read_address)
        m.d.sync += [
            opens.eq(step.opens), closes.eq(step.closes), has_word.eq(step.has_word),
            word.eq(step.word), header.eq(step.header), bypass.eq(rests.write_data),
            use_bypass.eq(ends_now),
            continues.eq((begun.bit_select(starts.read_address, 1) | ends_now)
                         & ~(issued.valid & (issued.tag == starts.read_address))),
            length_minus_1.eq((given_length >> log2(bus_bytes // DWORD)) - 1),
            left_minus_1.eq((given_left >> log2(bus_bytes)) - 1),
            whole.eq((given_length[:log2(bus_bytes // DWORD)] == 0) & given_length.any()
                     & (given_left[:log2(bus_bytes)] == 0) & given_left.any()),
        ]
        state, tag = Signal(expected), Signal(TAG_BITS)
        length = header.length[log2(bus_bytes // DWORD):]  # words
        success = header.status == CompletionStatus.SUCCESS
        known, matches, fails = Signal(), Signal(), Signal()
        m.d.comb += [
            tag.eq(header.tag),
            state.eq(Mux(continues, Mux(use_bypass, bypass, rests.read_data), starts.read_data)),
            known.eq(opens & (header.type == Type.COMPLETION) & ~header.fmt[0] & ~header.fmt[2]
                     & (header.tag < TAGS) & self.in_flight.bit_select(tag, 1)),
            matches.eq(known & success & (header.fmt == Fmt.SHORT_DATA) & whole
                       & (length_minus_1 <= state.len_minus_1)
                       & (left_minus_1 == state.len_minus_1)
                       & (header.lower_address == state.lower)),
            fails.eq(known & ~success),
        ]

        # The part that is being stored.
        storing, final, place = Signal(), Signal(), Signal(range(self.words))
        stored_tag, still = Signal(TAG_BITS), Signal(range(self.words + 1))
        rest, ended, refuses = Signal(expected), Signal(), Signal()
        with m.If(opens):
            m.d.sync += [
                storing.eq(matches), final.eq(length_minus_1 == state.len_minus_1),
                place.eq(state.offset),
                stored_tag.eq(tag), still.eq(length),
                rest.len_minus_1.eq(state.len_minus_1 - length),
                rest.lower.eq(state.lower + (length << log2(bus_bytes))),
                rest.offset.eq(state.offset + length),
            ]
        with m.Elif(has_word):
            m.d.sync += [place.eq(place + 1), still.eq(still - 1),
                         storing.eq(storing & (still != 0))]
        with m.If(ended | issued.valid & (issued.tag == stored_tag) & ~opens):
            m.d.sync += storing.eq(0)
        m.d.comb += [
            words.write_enable.eq(storing & has_word & (still != 0)),
            words.write_address.eq(stored_tag * self.words + place),
            words.write_data.eq(word),
            # A beat without double words may end a packet.
            ended.eq(storing & closes & ~opens & (still == has_word)),
            rests.write_enable.eq(ended & ~final),
            rests.write_address.eq(stored_tag),
            rests.write_data.eq(rest),
            self.refused.ready.eq(~opens & ~ended),
            refuses.eq(self.refused.valid & self.refused.ready),
            self.completed.eq(fails | ended & final | refuses),
            self.completed_tag.eq(Mux(opens, tag, Mux(ended, stored_tag, self.refused.p))),
        ]
        cause = Signal(Cause)
        with m.If(matches):
            m.d.comb += cause.eq(Cause.POISONED)
        with m.Elif(opens & (header.status == CompletionStatus.ABORTED)):
            m.d.comb += cause.eq(Cause.ABORTED)
        with m.Else():
            m.d.comb += cause.eq(Cause.UNSUPPORTED)
        for number in range(TAGS):
            with m.If((fails | matches & header.poisoned | refuses)
                      & (self.completed_tag == number)):
                m.d.sync += self.causes[number].eq(cause)
            with m.If(issued.valid & (issued.tag == number)):
                m.d.sync += [self.causes[number].eq(Cause.NONE), begun[number].eq(0)]
            with m.Elif(rests.write_enable & (stored_tag == number)):
                m.d.sync += begun[number].eq(1)
        return m
