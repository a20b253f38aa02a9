"""MoveControl: start the units that a command needs, one command at a time."""

from amaranth import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from ..config import Config, log2
from ..contract.command_rules import SPANS
from ..contract.encoding import ROW_ENTRY_BYTES, GatherFlag, Opcode, PoolFlag, UpdateFlag
from ..interfaces.records import ReadClient, command
from .bags.payloads import bag_setting, batch_setting
from .port.payloads import transfer_setting

ID_BYTES = 4
TARGET_BYTES = 4
LENGTH_BYTES = 2
WEIGHT_BYTES = 4


class MoveControl(wiring.Component):
    """Accept a command, request its lists, and hold its settings until it completes.

    Parameters
    ----------
    config : Config

    Attributes
    ----------
    command : In(stream(command))
    rows_request, targets_request, lengths_request, weights_request : Out(stream)
        Requests of `ReadClient`. `targets` only with LISTED; no list for a span; `lengths` for
        POOL and UPDATE; `weights` with WEIGHTED.
    rows_start, targets_start, lengths_start, weights_start : Out(stream)
        The `count` of elements, for the unpackers.
    start : Out(1)
        A pulse in the cycle after a command's handshake; its settings are valid from then on.
    done : In(1)
        A pulse at the handshake of the outcome.
    setting : Out(transfer_setting())
        For a span, `slots` is the destination and `count` the number of chunks.
    fills : Out(1)
        The command is a FILL with `pattern`.
    pattern : Out(32)
    bags : Out(bag_setting())
        Settings of POOL and UPDATE.
    batch : Out(batch_setting(config))
        With `config.pools_batches`. The list of rows then has pairs of ids.
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
            **({"batch": Out(batch_setting(config))} if config.pools_batches else {}),
            "start": Out(1),
            "done": In(1),
            "setting": Out(transfer_setting()),
            "fills": Out(1),
            "pattern": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        command, setting, busy, fire = self.command.p, self.setting, Signal(), Signal()
        listed = (command.flags & GatherFlag.LISTED) != 0
        to_tables = Cat(command.opcode == each for each in (Opcode.SCATTER, Opcode.UPDATE)).any()
        fills = command.opcode == Opcode.FILL
        spans = Cat(command.opcode == each for each in SPANS).any()
        chunk = self.config.row_bytes  # a power of two
        remainder = command.count[:log2(chunk)]
        lists = {"rows": ~spans, "targets": listed}  # a span has no such flag
        addresses = {"rows": command.source, "targets": command.targets}
        counts = {"rows": setting.count, "targets": setting.count}
        element_bytes = {"rows": ROW_ENTRY_BYTES, "targets": TARGET_BYTES}
        if self.config.arithmetic:
            self._bags(m, command, fire, lists, addresses, counts, element_bytes)
        m.d.comb += [
            self.command.ready.eq(~busy),
            fire.eq(self.command.valid & ~busy),
        ]
        for name, present in lists.items():
            request, start = getattr(self, f"{name}_request"), getattr(self, f"{name}_start")
            m.d.comb += [
                request.p.bytes.eq(counts[name] * element_bytes[name]),
                start.p.count.eq(counts[name]),
            ]
            if name == "rows" and self.config.pools_batches:
                with m.If(self.batch.valid):
                    m.d.comb += [request.p.bytes.eq(setting.count * ID_BYTES),
                                 start.p.count.eq((setting.count + 1) >> 1)]
            for output in (request, start):
                with m.If(output.ready):
                    m.d.sync += output.valid.eq(0)
            with m.If(fire):
                m.d.sync += [
                    request.valid.eq(present),
                    request.p.address.eq(addresses[name]),
                    start.valid.eq(present),
                ]
        with m.If(self.done):
            m.d.sync += busy.eq(0)
        m.d.sync += self.start.eq(fire)
        with m.If(fire):
            m.d.sync += [
                busy.eq(1),
                setting.listed.eq(listed),
                setting.with_state.eq((command.flags & GatherFlag.STATE) != 0),
                setting.count.eq(Mux(
                    spans, (command.count >> log2(chunk)) + remainder.any(), command.count)),
                setting.stride.eq(Mux(spans, chunk, command.stride)),
                setting.spans.eq(spans),
                self.fills.eq(fills),
                setting.source.eq(Mux(fills, command.destination, command.source)),
                setting.final_bytes.eq(Mux(remainder.any(), remainder, chunk)),
                self.pattern.eq(command.value),
                setting.to_tables.eq(to_tables),
                setting.slots.eq(Mux(to_tables, command.rows, command.destination)),
                setting.state_slots.eq(
                    Mux(to_tables, command.state_rows, command.state_destination)),
            ]
        return m

    def _bags(self, m, command, fire, lists, addresses, counts, element_bytes):
        """Settings and lists of POOL and UPDATE."""
        bags, total = self.bags, Signal(32)
        is_pool, is_update = command.opcode == Opcode.POOL, command.opcode == Opcode.UPDATE
        weighted = is_pool & (command.flags & PoolFlag.WEIGHTED).any()
        adagrad = is_update & (command.flags & UpdateFlag.ADAGRAD).any()
        typed = is_update & (command.flags & UpdateFlag.TYPED).any()
        lists |= {"lengths": is_pool | is_update, "weights": weighted}
        addresses |= {"lengths": command.lengths, "weights": command.weights}
        element_bytes |= {"lengths": LENGTH_BYTES, "weights": WEIGHT_BYTES}
        counts["targets"] = Mux(self.setting.bags, total, self.setting.count)
        counts["lengths"] = Mux(bags.updates, self.setting.count, total)
        counts["weights"] = self.setting.count
        count = command.bags  # the same operand as `gradient_count`
        if self.config.pools_batches:
            batch, pools_batch = self.batch, is_pool & (command.flags & PoolFlag.BATCH).any()
            samples = command.bags[:len(batch.samples)]
            count = Mux(pools_batch, samples * command.table_count, count)
            with m.If(fire):
                m.d.sync += [
                    batch.valid.eq(pools_batch),
                    batch.odd.eq(command.count[0]),
                    batch.samples.eq(samples),
                    batch.first_table.eq(command.first_table),
                ]
        with m.If(fire):
            m.d.sync += [
                self.setting.bags.eq(is_pool | is_update),
                total.eq(count),
                bags.updates.eq(is_update),
                bags.listed.eq((command.flags & PoolFlag.LISTED).any()),
                bags.weighted.eq(weighted),
                bags.mean.eq(is_pool & (command.flags & PoolFlag.MEAN).any()),
                bags.adagrad.eq(adagrad),
                bags.typed.eq(typed),
                bags.lr.eq(command.lr),
                bags.eps.eq(command.eps),
                self.setting.widened.eq(is_update & ~typed),
                bags.summands.eq(Mux(is_update, command.gradient_count, command.count)),
            ]
