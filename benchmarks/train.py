"""Whole training steps of the modes, of other libraries, and of simpler schemes.

Every contender starts from the same tables and model and trains on the same batches. The clock of
this machine times the steps, the simulation of the card included: the times are not those of a
card. The time inside the simulation, and that of the dense part alone, are named apart.
"""

import time
from statistics import median

import torch
from hotrow.command.limits import check_memory
from hotrow.contract.errors import Error
from hotrow.contract.geometry import preset
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import OPTIMIZERS
from hotrow.torch.training.dlrm import DLRM
from hotrow.torch.training.metrics import log_loss
from torch.nn.functional import binary_cross_entropy_with_logits

from .fbgemm import Absent
from .host_clock import DEVICE, TRANSPORT, PartClock
from .train_baselines import count, fae, filled, ranked_rows, static_cache
from .train_modes import MODES, Mode, hot_share
from .train_peers import PEERS

CLOCK = "wall clock of this machine, which also simulates the card"


def train(options, trace, steps) -> dict:
    """Train with every contender in turn, round after round."""
    _check(options, trace)
    rule = OPTIMIZERS[options.optimizer](options.lr)
    check_memory(trace, 4 * options.dim + 4 * bool(rule.state))
    if options.threads:
        torch.set_num_threads(options.threads)
    steps.begin("making batches")
    batches = [trace.batch(number, options.batch)
               for number in range(options.learning + options.warm_up + options.steps)]
    steps.begin(f"making {trace.rows:,} rows")
    tables = EmbeddingTables(trace.cardinalities, options.dim,
                             rule.initial if rule.state else None, rule.state or "row")
    arena = _Arena(options, trace, batches, tables, rule)
    names = [*options.modes, *(PEERS if options.peers else ())]
    records: dict[str, dict] = {}
    absent = []
    advance = steps.begin("training", options.rounds * len(names))
    for _ in range(options.rounds):
        for name in names:
            try:
                arena.play(name, records)
            except Absent as reason:
                absent.append({"name": name.name, "why": str(reason)})
                names = [each for each in names if each is not name]
            advance()
    return {
        "rows": trace.rows, "tables": tables.count, "dim": options.dim,
        "table_bytes": arena.table_bytes, "optimizer": options.optimizer, "rounds": options.rounds,
        "steps": options.steps, "learning_batches": options.learning, "clock": CLOCK,
        "threads": torch.get_num_threads(), "model_ms": arena.model_ms,
        "contenders": arena.finished(records), "counted": arena.counted(steps), "absent": absent,
    }


def _check(options, trace):
    if not trace.labelled:
        raise Error(f"training needs a label, and trace {trace.name} has none")
    unknown = {name for name in options.modes if name not in MODES and hot_share(name) is None}
    if unknown or not options.modes:
        raise Error(f"--modes names some of {','.join(MODES)},hotline:PERCENT, not "
                    f"{','.join(sorted(unknown))!r}")
    if 4 * options.dim % 16:
        raise Error(f"--dim must be a multiple of 4, not {options.dim}: rows are moved where they "
                    f"lie, in multiples of 16 bytes")


class _Arena:
    """One set of tables on which all contenders train, one after another."""

    def __init__(self, options, trace, batches, tables, rule):
        self.options, self.trace, self.tables, self.rule = options, trace, tables, rule
        self.learning = batches[:options.learning]
        self.batches = batches[options.learning:]
        self.row_bytes = 4 * tables.dim + (4 if rule.state else 0)
        self.table_bytes = self.row_bytes * trace.rows
        # Time of the thread leaves other processes out, but has no time of other threads.
        self.clock = (time.thread_time if torch.get_num_threads() == 1 and not options.workers
                      else time.perf_counter)
        self.model_ms = 1e3 * median(list(self._dense_steps())[options.warm_up:])
        self.ranked = {}
        for name in filter(hot_share, options.modes):
            hot = max(1, int(hot_share(name) / 100 * trace.rows))
            self.ranked[name] = filled(tables, ranked_rows(tables, self.learning, hot), hot)

    def play(self, kind, records):
        """Run a round of one contender: `kind` is the name of a mode, or a Peer."""
        options, tables, rule = self.options, self.tables, self.rule
        tables.initialise(options.seed)
        if rule.state:
            tables.rows.state.fill_(rule.initial)
        model = self._model()
        made = (Mode(kind, model, tables, rule, options, self.ranked.get(kind))
                if isinstance(kind, str) else kind(model, tables, rule))
        with made as contender:
            contender.learn(self.learning)
            first = contender.name not in records
            record = records.setdefault(contender.name, {"rates": [], "own": [], "simulated": []})
            seconds, own, simulated, results = self._steps(contender)
            record["rates"].append(options.steps / seconds)
            record["own"].append(1e3 * own / options.steps)
            record["simulated"].append(1e3 * simulated / options.steps)
            if first:
                contender.flush()
                self._describe(record, contender, results)

    def _model(self):
        torch.manual_seed(self.options.seed)
        return DLRM(self.trace.dense_columns, self.tables.count, self.tables.dim,
                    self.options.mlp_scale)

    def _dense_steps(self):
        """Seconds of each step of the dense part alone, with embeddings that are given."""
        model = self._model()
        optimizer = torch.optim.SGD(model.parameters(), self.rule.lr)
        for samples in self.batches:
            pooled = torch.rand(len(samples), self.tables.count, self.tables.dim,
                                requires_grad=True)
            started = self.clock()
            logits = model(torch.from_numpy(samples.dense), pooled)
            model.zero_grad()
            binary_cross_entropy_with_logits(logits, torch.from_numpy(samples.label)).backward()
            optimizer.step()
            yield self.clock() - started

    def _steps(self, contender):
        """Run all steps; return the seconds after the warm-up, those without and of the simulation,
        and the StepResults."""
        announced, clock = 0, PartClock(self.clock)
        if contender.device is not None and not self.options.workers:
            clock.wrap(contender.device.transport, TRANSPORT, DEVICE)
        results, started, began = [], time.perf_counter(), self.clock()
        for number, samples in enumerate(self.batches):
            if number == self.options.warm_up:
                clock.seconds.clear()
                started, began = time.perf_counter(), self.clock()
            while announced < min(len(self.batches), number + contender.ahead + 1):
                contender.announce(self.batches[announced])
                announced += 1
            results.append(contender.step(samples))
        simulated = clock.seconds[DEVICE]
        return (time.perf_counter() - started, self.clock() - began - simulated, simulated,
                results[self.options.warm_up:])

    def _describe(self, record, contender, results):
        timed = self.batches[self.options.warm_up:]
        lookups = sum(each.lookups for each in results)
        cached = contender.slots is not None
        record |= {
            "name": contender.name, "kind": contender.kind, "slots": contender.slots,
            "warmed_rows": contender.warmed,
            "hit_rate": sum(each.hits for each in results) / lookups if cached else None,
            "popular_fraction": sum(each.popular for each in results) / sum(map(len, timed))
            if contender.name.startswith("hotline") else None,
            "rows_moved": sum(each.rows_moved for each in results),
            "link_bytes": sum(each.link_bytes for each in results),
            "slot_bytes": contender.slot_bytes() or None,
            "metadata_bits_per_slot": contender.metadata_bits(),
            "loss": sum(log_loss(samples.label, each.logits)
                        for samples, each in zip(timed, results, strict=True)) / len(results),
            "table_sha256": self.tables.sha256()
            if contender.kind == "hotrow" or contender.in_tables else None,
        }

    def finished(self, records):
        """Records of the contenders, with medians and comparisons."""
        done = []
        expected = records.get("resident", {}).get("table_sha256")
        for record in records.values():
            rates, host = record.pop("rates"), median(record.pop("own"))
            simulated = median(record.pop("simulated"))
            apart = not (self.options.workers and record["slots"])
            exact = record["name"] in ("resident", "scratchpipe", "freqcache") and expected
            done.append({
                "name": record["name"], "kind": record["kind"], "steps_per_s": median(rates),
                "slowest_steps_per_s": min(rates), "fastest_steps_per_s": max(rates),
                # With workers the simulation runs beside the trainer, and cannot be subtracted.
                "simulation_ms": simulated if apart else None,
                "steps_per_s_without_simulation": 1e3 / host if apart else None,
                "embedding_ms": host - self.model_ms if apart else None, **record,
                "table_hash_equal": record["table_sha256"] == expected if exact else None})
        return done

    def counted(self, steps):
        """Records of the counted baselines: with one hot row per slot, and with the hot rows of
        each `hotline:PERCENT`."""
        steps.begin("counting for FAE and a static cache")
        slots, records = self.options.hot_rows or self.options.slots or self._preset_slots(), []
        for hot in (ranked_rows(self.tables, self.learning, slots), *self.ranked.values()):
            found = count(self.tables, hot, self.batches[self.options.warm_up:])
            records += [{"hot_rows": len(hot), **each} for each in (
                static_cache(self.tables, found, self.row_bytes),
                fae(self.tables, found, self.row_bytes, len(hot)))]
        return records

    def _preset_slots(self):
        return preset(self.options.preset).slots
