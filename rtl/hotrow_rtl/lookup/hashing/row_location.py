"""Location of a row's state: its bank, and its sets and tags in the bank.

The lowest bits of the hashed key are the bank; the others, `bank_key`, are all that the bank sees
of the row. The directory hashes `bank_key` again for its second hash choice. Every hash is
invertible, so a tag stores only the bits that bank and set do not imply.

The functions take Python integers and NumPy ``uint64`` arrays; those of `bank_key` also Amaranth
values.
"""

from ...config import Config, log2
from .xorshift import hash_key, unhash_key


def split_key(config: Config, key):
    """(bank, bank_key) of a packed (table, row) key."""
    hashed = hash_key(key, 0, config.key_width)
    return hashed & (config.banks - 1), hashed >> log2(config.banks)


def join_key(config: Config, bank, bank_key):
    """The packed key of a row; the inverse of `split_key`."""
    return unhash_key(bank_key << log2(config.banks) | bank, 0, config.key_width)


def split_counter_key(config: Config, bank_key):
    """(set within the bank, tag) of a row in the access counters."""
    sets = config.counter_sets // config.banks
    return bank_key & (sets - 1), bank_key >> log2(sets)


def join_counter_key(config: Config, set_, tag):
    """The `bank_key` of a counted row; the inverse of `split_counter_key`."""
    return tag << log2(config.counter_sets // config.banks) | set_


def directory_hash(config: Config, choice, bank_key):
    """Hash of a row for a hash choice of the directory: the set is in its lowest bits, the tag in
    its `directory_tag_width` highest."""
    return bank_key if choice == 0 else hash_key(bank_key, choice, config.bank_key_width)
