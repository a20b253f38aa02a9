"""Addresses of a card in a network, and parameters of its PHY."""

import ipaddress
import re
from dataclasses import dataclass

_LOCAL = 0x02_00 << 32  # prefix of a locally administered MAC address


@dataclass(frozen=True)
class Station:
    """The addresses of a card.

    Parameters
    ----------
    address : str
        IPv4 address of a single host, such as "192.168.1.50".
    mac : str
        Unicast MAC address, such as "02:00:c0:a8:01:32"; default 02:00 followed by the four bytes
        of `address`.

    Raises
    ------
    ValueError
        If an address is not that of a single host.
    """

    address: str = "192.168.1.50"
    mac: str = ""

    def __post_init__(self):
        try:
            address = ipaddress.IPv4Address(self.address)
        except ValueError:
            address = None
        # The core treats an address that ends in 255 as a broadcast, and in 0 as a network.
        if address is None or address.is_multicast or address.is_reserved or address.is_loopback \
                or address.packed[0] == 0 or address.packed[3] in (0, 255):
            raise ValueError(f"expected an IPv4 address of one host, such as 192.168.1.50, not "
                             f"{self.address!r}")
        mac = self.mac or (_LOCAL | int(address)).to_bytes(6, "big").hex(":")
        if not re.fullmatch(r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5}", mac) \
                or int(mac[:2], 16) & 1 or not int(mac.replace(":", ""), 16):
            raise ValueError("expected the MAC address of one card, six bytes whose first is even, "
                             f"such as 02:00:c0:a8:01:32, not {self.mac!r}")
        object.__setattr__(self, "mac", mac.lower())

    @property
    def mac_number(self) -> int:
        """The MAC address as a big-endian number."""
        return int(self.mac.replace(":", ""), 16)


@dataclass(frozen=True)
class Rgmii:
    """The connection of a board's gigabit PHY.

    Parameters
    ----------
    number : int
        Number of the platform's resource `eth_rgmii`.
    tx_delay_ns, rx_delay_ns : float
        Delay that the FPGA adds to the clock to the PHY, and to the data from the PHY, below 3.2;
        0 where the PHY or the board adds it.
    """

    number: int = 0
    tx_delay_ns: float = 0
    rx_delay_ns: float = 0
