"""Move control: start everything that a command needs, one at a time."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.command_rules import SPANS
from ..contract.encoding import ROW_ENTRY_BYTES, GatherFlag, Opcode, PoolFlag, UpdateFlag
from ..interfaces.records import ReadClient, command
from .bags.payloads import bag_setting
from .port.payloads import move_setting

TARGET_BYTES = 4
LENGTH_BYTES = 2
WEIGHT_BYTES = 4


class MoveControl(wiring.Component):
    """Take a command, ask for its lists, hold its settings until it is over.

    Parameters
    ----------
    config : Config

    Members
    -------
    command : In(stream(command))
    rows_request, targets_request, lengths_request, weights_request : Out(stream)
        As of `ReadClient`; targets only for a command that is LISTED, neither for a span; lengths for
        one on bags, and weights for one that is WEIGHTED.
    rows_start, targets_start, lengths_start, weights_start : Out(stream)
        The `count` of elements, for the unpackers.
    start : Out(1)
        A pulse in the cycle after a command is taken, from which on its settings are there.
    over : In(1)
        A pulse when its outcome has been taken.
    setting : Out(move_setting())
        The `slots` of a span are its destination, its `count` that of its pieces.
    fills : Out(1)
        The command is a span whose bytes are not read, but of `pattern`.
    pattern : Out(32)
    bags : Out(bag_setting())
        What holds for a command on bags.
    """

    def __init__(self, config: Config):
        self.config = config
        request = ReadClient(config).members["request"].signature
        count = stream.Signature(data.StructLayout({"count": 32}))
        super().__init__({
            "command": In(stream.Signature(command)),
            "rows_request": Out(request),
            "targets_request": Out(request),
            "rows_start": Out(count),
            "targets_start": Out(count),
            **({"lengths_request": Out(request), "weights_request": Out(request),
                "lengths_start": Out(count), "weights_start": Out(count),
                "bags": Out(bag_setting())} if config.arithmetic else {}),
            "start": Out(1),
            "over": In(1),
            "setting": Out(move_setting()),
            "fills": Out(1),
            "pattern": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        wanted, setting, busy, taken = self.command.p, self.setting, Signal(), Signal()
        listed = (wanted.flags & GatherFlag.LISTED) != 0
        to_tables = Cat(wanted.opcode == each for each in (Opcode.SCATTER, Opcode.UPDATE)).any()
        fills = wanted.opcode == Opcode.FILL
        spans = Cat(wanted.opcode == each for each in SPANS).any()
        piece = self.config.row_bytes  # a power of two
        rest = wanted.count[:log2(piece)]
        lists = {"rows": ~spans, "targets": listed}  # a flag that spans do not have
        addresses = {"rows": wanted.source, "targets": wanted.targets}
        counts = {"rows": setting.count, "targets": setting.count}
        element_bytes = {"rows": ROW_ENTRY_BYTES, "targets": TARGET_BYTES}
        if self.config.arithmetic:
            self._bags(m, wanted, taken, lists, addresses, counts, element_bytes)
        m.d.comb += [
            self.command.ready.eq(~busy),
            taken.eq(self.command.valid & ~busy),
        ]
        for name, has in lists.items():
            request, start = getattr(self, f"{name}_request"), getattr(self, f"{name}_start")
            m.d.comb += [
                request.p.bytes.eq(counts[name] * element_bytes[name]),
                start.p.count.eq(counts[name]),
            ]
            for order in (request, start):
                with m.If(order.ready):
                    m.d.sync += order.valid.eq(0)
            with m.If(taken):
                m.d.sync += [
                    request.valid.eq(has),
                    request.p.address.eq(addresses[name]),
                    start.valid.eq(has),
                ]
        with m.If(self.over):
            m.d.sync += busy.eq(0)
        m.d.sync += self.start.eq(taken)
        with m.If(taken):
            m.d.sync += [
                busy.eq(1),
                setting.listed.eq(listed),
                setting.with_state.eq((wanted.flags & GatherFlag.STATE) != 0),
                setting.count.eq(Mux(
                    spans, (wanted.count >> log2(piece)) + rest.any(), wanted.count)),
                setting.stride.eq(Mux(spans, piece, wanted.stride)),
                setting.spans.eq(spans),
                self.fills.eq(fills),
                setting.source.eq(Mux(fills, wanted.destination, wanted.source)),
                setting.final_bytes.eq(Mux(rest.any(), rest, piece)),
                self.pattern.eq(wanted.value),
                setting.to_tables.eq(to_tables),
                setting.slots.eq(Mux(to_tables, wanted.rows, wanted.destination)),
                setting.state_slots.eq(Mux(to_tables, wanted.state_rows, wanted.state_destination)),
            ]
        return m

    def _bags(self, m, wanted, taken, lists, addresses, counts, element_bytes):
        """Settings and lists of commands on bags."""
        bags, total = self.bags, Signal(32)
        is_pool, is_update = wanted.opcode == Opcode.POOL, wanted.opcode == Opcode.UPDATE
        weighted = is_pool & (wanted.flags & PoolFlag.WEIGHTED).any()
        adagrad = is_update & (wanted.flags & UpdateFlag.ADAGRAD).any()
        typed = is_update & (wanted.flags & UpdateFlag.TYPED).any()
        lists |= {"lengths": is_pool | is_update, "weights": weighted}
        addresses |= {"lengths": wanted.lengths, "weights": wanted.weights}
        element_bytes |= {"lengths": LENGTH_BYTES, "weights": WEIGHT_BYTES}
        counts["targets"] = Mux(self.setting.bags, total, self.setting.count)
        counts["lengths"] = Mux(bags.updates, self.setting.count, total)
        counts["weights"] = self.setting.count
        with m.If(taken):
            m.d.sync += [
                self.setting.bags.eq(is_pool | is_update),
                total.eq(wanted.bags),  # or gradients
                bags.updates.eq(is_update),
                bags.listed.eq((wanted.flags & PoolFlag.LISTED).any()),
                bags.weighted.eq(weighted),
                bags.mean.eq(is_pool & (wanted.flags & PoolFlag.MEAN).any()),
                bags.adagrad.eq(adagrad),
                bags.typed.eq(typed),
                bags.lr.eq(wanted.lr),
                bags.eps.eq(wanted.eps),
                self.setting.widened.eq(is_update & ~typed),
                bags.items.eq(Mux(is_update, wanted.gradient_count, wanted.count)),
            ]
