"""Where the state of a row lives: its bank, and its sets and tags there.

The key of a row, mixed once, tells the bank by its lowest bits; the rest of it is what a bank works
on: `rest`, mixed a second time for the second hash choice of the directory. All of it can be
undone, so that a tag stores only what bank and set do not tell.

The functions work alike on Python integers and NumPy ``uint64`` arrays, those of `rest` on Amaranth
values too.
"""

from ...config import Config, log2
from .xorshift import hash_key, unhash_key


def place(config: Config, key):
    """(bank, rest) of a packed (table, row) key."""
    mixed = hash_key(key, 0, config.key_width)
    return mixed & (config.banks - 1), mixed >> log2(config.banks)


def key_of(config: Config, bank, rest):
    """The packed key that `place` took apart."""
    return unhash_key(rest << log2(config.banks) | bank, 0, config.key_width)


def counter_place(config: Config, rest):
    """(set within the bank, tag) of the access counters."""
    sets = config.counter_sets // config.banks
    return rest & (sets - 1), rest >> log2(sets)


def counter_rest(config: Config, set_, tag):
    """The `rest` that `counter_place` took apart."""
    return tag << log2(config.counter_sets // config.banks) | set_


def directory_hash(config: Config, choice, rest):
    """What the set and the tag of a hash choice are taken from: set from the lowest bits, tag
    from the `directory_tag_width` highest."""
    return rest if choice == 0 else hash_key(rest, choice, config.bank_key_width)
