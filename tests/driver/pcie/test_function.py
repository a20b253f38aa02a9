"""A PCI function's BAR and configuration, which are files here."""

import pytest
from hotrow import TransportError
from hotrow.contract.generated import IDENTITY, REGISTERS
from hotrow.transports.pcie.bar import enable, find_function, sysfs_bar

from tests.driver.pcie.cards import BAR_BYTES


def test_registers_of_a_bar(function):
    bar = sysfs_bar(function, 0)
    assert bar.read(REGISTERS["IDENTITY"]) == IDENTITY
    bar.write(8, 0x89AB_CDEF)
    assert (function / "resource0").read_bytes()[8:12] == bytes.fromhex("efcdab89")
    bar.write(8, 0xFFFF_FFFF)
    assert bar.read(8) == 0xFFFF_FFFF, "a value of a card that answers"
    for offset in (2, -4, BAR_BYTES):
        with pytest.raises(TransportError, match=f"has {BAR_BYTES} bytes of registers, none at"):
            bar.read(offset)
    (function / "resource0").write_bytes(b"\xff" * BAR_BYTES)  # a removed card
    with pytest.raises(TransportError, match="does not answer: the card was removed"):
        bar.read(8)
    bar.close()


@pytest.mark.parametrize("master, command", [(True, 4 | 2), (False, 2)])
def test_a_function_is_enabled(function, master, command):
    with (function / "config").open("r+b", buffering=0) as file:
        enable(file.fileno(), master=master)
    found = (function / "config").read_bytes()
    assert found == bytes([*range(4), command, *range(5, 64)])


@pytest.mark.parametrize("address, message", [
    (None, "no PCI function was named: write domain"), ("01:00.0", "as `lspci -D` prints"),
    ("0000:01:00.8", "is no PCI function"), ("../../etc", "is no PCI function"),
    ("0000:02:00.0", "there is no PCI function 0000:02:00.0"),
])
def test_functions_that_are_not_there(function, address, message):
    with pytest.raises(ValueError, match=message):
        find_function(address, function.parent)


@pytest.mark.parametrize("number", [1, 2])
def test_a_bar_that_is_not_there(function, number):
    with pytest.raises(ValueError, match=f"has no BAR {number} of memory"):
        sysfs_bar(function, number)
