"""Options of the benchmarks of this folder, and what they share."""

from hotrow import Error
from hotrow.command.options import (
    add_json,
    names,
    natural,
    output_folder,
    positive,
    positives,
    rate,
    window,
)


def add_moves(parser):
    """Add the options of the rows to move."""
    parser.add_argument("--row-bytes", type=positive, default=64, help="a multiple of 16")
    parser.add_argument("--moved-rows", type=positive, dest="rows",
                        help="rows to move; by default each port carries 2^18 beats")
    parser.add_argument("--table-rows", type=positive,
                        help="rows of the table; default 2^20 in at most 256 MiB")
    parser.add_argument("--ports", type=positive, help="row ports; default as in the preset")
    parser.add_argument("--outstanding", type=positive,
                        help="rows in flight per port; default as in the preset")
    parser.add_argument("--clock-mhz", type=positive,
                        help="clock of the card; default the preset's assumed clock")
    parser.add_argument("--seed", type=natural, default=0, help="of generated data")
    add_json(parser)


def add_planner(parser):
    """Add the options of plans."""
    parser.add_argument("--policy", choices=("lru", "rrip", "lfu", "freq"), default="lru",
                        help="replacement policy; lfu and freq also count the lookups")
    parser.add_argument("--window", type=window, default=(3, 2), metavar="PAST,FUTURE",
                        help="batches held before and after the planned batch")
    parser.add_argument("--slots", type=positive, help="of the card; default as in the preset")
    parser.add_argument("--counters", type=positive,
                        help="of the card; default as in the preset")
    parser.add_argument("--room", type=rate, metavar="RATIO",
                        help="reduce the batch until the card has RATIO slots per row of a window")
    parser.add_argument("--row-bytes", type=positive, default=64, help="bytes of a row on the link")
    parser.add_argument("--clock-mhz", type=positive,
                        help="clock of the card; default the preset's assumed clock")


def add_training(parser):
    """Add the options of whole training steps."""
    parser.add_argument("--modes", type=names, default=("resident", "scratchpipe", "freqcache",
                                                        "hotline"),
                        help="resident, scratchpipe, freqcache, hotline, hotline:PERCENT with "
                             "that share of all rows hot, ranked by lookups of the learning "
                             "batches")
    parser.add_argument("--peers", action="store_true",
                        help="add PyTorch's sparse EmbeddingBags, FBGEMM and TorchRec")
    parser.add_argument("--optimizer", choices=("sgd", "rowwise_adagrad"), default="sgd",
                        help="of the tables")
    parser.add_argument("--dim", type=positive, default=16, help="elements of a row")
    parser.add_argument("--mlp-scale", type=rate, default=0.25,
                        help="factor on the width of the DLRM's hidden layers")
    parser.add_argument("--lr", type=rate, default=0.1, help="learning rate")
    parser.add_argument("--slots", type=positive,
                        help="of the card, a power of two; default as in the preset")
    parser.add_argument("--hot-rows", type=positive,
                        help="rows with a slot in hotline, at most; default one per slot")
    parser.add_argument("--steps", type=positive, default=20, help="timed steps of a round")
    parser.add_argument("--warm-up", type=positive, default=3, help="steps before the timed ones")
    parser.add_argument("--learning", type=positive, default=10,
                        help="batches that are counted first")
    parser.add_argument("--rounds", type=positive, default=3,
                        help="rounds over all contenders; medians are reported")
    parser.add_argument("--policy", choices=("lru", "rrip", "lfu", "freq"),
                        help="choice of the row that leaves its slot; default lru, in "
                        "freqcache lfu")
    parser.add_argument("--depth", type=positive, default=4, help="batches planned and not trained")
    parser.add_argument("--look-ahead", type=natural, default=2, help="batches marked after it")
    parser.add_argument("--workers", type=natural, default=0, help="threads of the stages")
    parser.add_argument("--threads", type=positive, help="of PyTorch; default all cores")


def add_host(parser):
    """Add the options of the host's time."""
    parser.add_argument("--modes", type=names, default=("scratchpipe", "freqcache", "hotline"),
                        help="of resident, scratchpipe, freqcache, hotline, near_memory")
    parser.add_argument("--bag-size", type=positive, default=1, help="ids of a bag")
    parser.add_argument("--optimizer", choices=("sgd", "rowwise_adagrad", "adam"), default="sgd",
                        help="of the tables")
    parser.add_argument("--dim", type=positive, default=16, help="elements of a row")
    parser.add_argument("--lr", type=rate, default=0.01, help="learning rate")
    parser.add_argument("--steps", type=positive, default=10, help="timed; medians are reported")
    parser.add_argument("--warm-up", type=positive, default=6, help="steps before the timed ones")
    parser.add_argument("--learning", type=positive, default=4,
                        help="batches that hotline counts before")
    parser.add_argument("--converted", action="store_true",
                        help="a model of one nn.EmbeddingBag per table, converted")
    parser.add_argument("--threads", type=positive,
                        help="of PyTorch, default all cores, and of the card, default 1")


def add_cells(parser):
    """Add the options of the cells of `cpu`."""
    parser.add_argument("--batches", type=positives, default=(512, 2048, 8192), help="samples")
    parser.add_argument("--dims", type=positives, default=(16, 64, 128), help="elements of a row")
    parser.add_argument("--bags", type=positives, default=(1, 20), help="ids of a bag")
    parser.add_argument("--optimizers", type=names, default=("sgd", "rowwise_adagrad"),
                        help="of sgd, rowwise_adagrad, adagrad, adam")
    parser.add_argument("--modes", type=names, default=("resident", "scratchpipe"),
                        help="of resident, scratchpipe, freqcache")
    parser.add_argument("--trace", dest="generated", default="zipf:1.05",
                        help="generated ids: zipf:S[:rows], uniform or single")
    parser.add_argument("--tables", type=positive, default=26, help="tables of a generated trace")
    parser.add_argument("--rows", type=positive, default=100_000,
                        help="rows of a table of a generated trace")
    parser.add_argument("--lr", type=rate, default=0.01, help="learning rate")
    parser.add_argument("--rounds", type=positive, default=5,
                        help="timed steps of each contender and state of the caches")
    parser.add_argument("--threads", type=positive, default=1, help="of PyTorch")
    parser.add_argument("--seed", type=natural, default=0, help="of generated data")
    parser.add_argument("-o", "--output", type=output_folder, help="folder for a plot, cpu.svg")
    add_json(parser)


def sets_of(what, entries, per_set) -> int:
    """Sets of a card's memory of `entries`.

    Raises
    ------
    Error
        Beginning with `what`: the sets are not a power of two.
    """
    sets, rest = divmod(entries, per_set)
    if rest or not sets or sets & (sets - 1):
        raise Error(f"{what}: expected {per_set} times a power of two, got {entries}")
    return sets
