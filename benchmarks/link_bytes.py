"""What a training step sends over the link of a board.

Every mode trains on the same batches with a golden card at the other end of a link in this process.
The bytes are counted; the steps per second are projected from the time that a line needs for them.
"""

from argparse import Namespace

import hotrow
import torch
from hotrow.torch.memory.tables import EmbeddingTables
from hotrow.torch.optim.rules import OPTIMIZERS
from hotrow.torch.training.collection_trainer import CollectionTrainer
from hotrow.torch.training.dlrm import DLRM
from hotrow.transports.link.serial_line import encode
from hotrow.transports.link.transport import LinkTransport
from hotrow_rtl.config import preset
from hotrow_sim.link.local_channel import LocalChannel
from hotrow_sim.link.model_card import ModelCard

MODES = {"scratchpipe": {"mode": "scratchpipe"}, "freqcache": {"mode": "freqcache"},
         "hotline": {"mode": "hotline"}, "hotline pooled": {"mode": "hotline", "cold": "pooled"}}
BLOCK_LOG2 = 12  # of the ECPIX-5 with DRAM
BAUD, BITS = 3_000_000, 10  # of a serial line; bits of a byte, with start and stop
GIGABIT = 1e9
# Preamble, headers of Ethernet, IPv4 and UDP, checksum and gap; the least payload of Ethernet.
ETHERNET, HEADERS, LEAST = 8 + 14 + 4 + 12, 20 + 8, 46


def measure(options, trace, steps) -> dict:
    """Train in every mode."""
    count = options.learning + options.warm_up + options.steps
    batches = [trace.batch(number, options.batch) for number in range(count)]
    advance = steps.begin("training", 1 + len(MODES))
    expected = _train(options, trace, batches, None, {}).tables.sha256()
    advance()
    modes = []
    for name, how in MODES.items():
        modes.append({"mode": name, **_counted(options, trace, batches, how, expected)})
        advance()
    return {"dim": options.dim, "optimizer": options.optimizer, "steps": options.steps,
            "table_bytes": trace.rows * (4 * options.dim + 4 * (
                options.optimizer == "rowwise_adagrad")),
            "modes": modes,
            "agrees": all(each["table_hash_equal"] is not False for each in modes)}


def _counted(options, trace, batches, how, expected):
    """Figures of one mode."""
    row = 4 * (options.dim + 1)
    size = 1 << (2 * trace.rows * row + (4 << 20)).bit_length()
    card = ModelCard(preset(options.preset), size, BLOCK_LOG2)
    channel = LocalChannel(card.endpoint())
    with hotrow.Device(LinkTransport("link", channel), 60.0, 64, 0) as device:
        run = _train(options, trace, batches, device, how, channel)
        trained = channel.frames[run.first:run.last]
        flushed = channel.frames[run.last:]
        run.trainer.collection.close()
    per_step = Line.of(trained, options.steps)
    exact = how["mode"] != "hotline"  # whose micro-batches sum in another order
    return {
        "bytes_up": per_step.up, "bytes_down": per_step.down, "frames": per_step.frames,
        "projected_steps_per_s_uart": 1 / per_step.uart,
        "projected_steps_per_s_gigabit": 1 / per_step.gigabit,
        "bytes_before_training": Line.of(channel.frames[:run.first], 1).up,
        "bytes_of_flush": Line.of(flushed, 1).down,
        "table_hash_equal": run.tables.sha256() == expected if exact else None,
    }


class Line:
    """What frames take on a line.

    Attributes
    ----------
    up, down : float
        Bytes of frames to the card and from it.
    frames : float
        In both directions.
    uart, gigabit : float
        Seconds on a serial line and on gigabit Ethernet, one direction after the other.
    """

    @classmethod
    def of(cls, pairs, steps):
        """Mean over `steps` of (request, reply) pairs."""
        line, every = cls(), [frame for pair in pairs for frame in pair]
        line.up, line.down = (sum(map(len, way)) / steps for way in zip(*pairs, strict=True))
        line.frames = len(every) / steps
        line.uart = sum(len(encode(each)) for each in every) * BITS / BAUD / steps
        line.gigabit = sum(ETHERNET + max(LEAST, HEADERS + len(each)) for each in every) * 8 \
            / GIGABIT / steps
        return line


def _train(options, trace, batches, device, how, channel=None):
    """Train; Namespace of the trainer, its tables and, with a channel, the frames before the
    first and after the last counted step."""
    rule = OPTIMIZERS[options.optimizer](0.1)
    tables = EmbeddingTables(trace.cardinalities, options.dim,
                             rule.initial if rule.state else None, rule.state or "row")
    tables.initialise(options.seed)
    torch.manual_seed(options.seed)
    model = DLRM(trace.dense_columns, tables.count, tables.dim, 0.1)
    trainer = CollectionTrainer(model, tables, rule, device, **{"mode": "resident", **how})
    store, first = trainer.collection.store, 0
    if how.get("mode") in ("freqcache", "hotline"):
        for samples in batches[:options.learning]:
            trainer.observe(samples)
        trainer.collection.learn()
    batches, announced = batches[options.learning:], 0
    ahead = 0 if how.get("mode", "hotline") == "hotline" else store.depth - 1 + store.look_ahead
    for number, samples in enumerate(batches):
        if number == options.warm_up and channel:
            first = len(channel.frames)
        while ahead and announced < min(len(batches), number + ahead + 1):
            trainer.prefetch(batches[announced])
            announced += 1
        trainer.step(samples)
    last = len(channel.frames) if channel else 0
    trainer.flush()
    return Namespace(trainer=trainer, tables=tables, first=first, last=last)
