"""Where a card is in its network, and how its FPGA reaches the network's PHY."""

import ipaddress
import re
from dataclasses import dataclass

_LOCAL = 0x02_00 << 32  # prefix of a MAC address that its owner chose


@dataclass(frozen=True)
class Station:
    """The addresses of a card.

    Parameters
    ----------
    address : str
        IPv4, of a single host: "192.168.1.50".
    mac : str
        Six bytes, of a single card: "02:00:c0:a8:01:32". Left out, a locally administered one that
        ends in the four bytes of `address`.

    Raises
    ------
    ValueError
        If no card can have them.
    """

    address: str = "192.168.1.50"
    mac: str = ""

    def __post_init__(self):
        try:
            address = ipaddress.IPv4Address(self.address)
        except ValueError:
            address = None
        # The core takes whatever ends in 255 for a broadcast, and 0 for a network.
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
        """The MAC address, its first byte highest."""
        return int(self.mac.replace(":", ""), 16)


@dataclass(frozen=True)
class Rgmii:
    """A gigabit PHY on a board.

    Parameters
    ----------
    number : int
        Of the resource `eth_rgmii` of the board's platform.
    tx_delay_ns, rx_delay_ns : float
        That the FPGA adds to the clock towards the PHY and to data from it; 0 where PHY or board
        do. Below 3.2.
    """

    number: int = 0
    tx_delay_ns: float = 0
    rx_delay_ns: float = 0
