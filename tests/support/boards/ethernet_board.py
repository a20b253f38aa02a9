"""A simulated board with Ethernet: a card's Verilog with RGMII pins, and a loopback socket.

The driver opens the socket like a card in a network. The board translates datagrams to Ethernet
frames: each address 127.0.0.n is a host n in the network of the card, with ARP and UDP.
"""

import socket
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from ..link.ethernet import ARP, ARP_REPLY, ARP_REQUEST, BROADCAST, IPV4, Arp, Datagram, Frame
from ..link.lossy_network import LossyNetwork
from .board import SimulatedBoard, compile_board

HARNESS = Path(__file__).with_name("ethernet_board.cpp")
CELLS = Path(__file__).with_name("ethernet_cells.v")
PINS = {"clk": "input", "rst": "input", "rx_clk": "input", "rx_ctl": "input",
        "rx_data": "input [3:0]", "tx_clk": "output", "tx_ctl": "output", "tx_data": "output [3:0]"}
LINE_HZ = 125e6
LOOPBACK = IPv4Network("127.0.0.0/24")
_LARGEST = 2048  # bytes of a datagram


def board_library(verilog: str, module: str) -> Path:
    """Path of the shared library of a card; see `compile_board`.

    Parameters
    ----------
    verilog : str
        Contains a module with the pins clk and rst, and RGMII pins with the prefix `pins__`,
        without the cells of the FPGA.
    module : str
        Name of that module.
    """
    connected = ", ".join(f".{name if name in ('clk', 'rst') else f'pins__{name}'}({name})"
                          for name in PINS)
    return compile_board(verilog + CELLS.read_text(), HARNESS, PINS,
                         f"{module} board({connected});")


class EthernetBoard(SimulatedBoard):
    """A simulated board with Ethernet.

    Parameters
    ----------
    library : Path
        See `board_library`.
    clock_hz : float
        Clock of the card; the line has 125 MHz.
    address : str
        Address of the card, in a network of 256 addresses.
    card_port : int
        UDP port of the card.
    network : dict
        Parameters of the `LossyNetwork` between host and card.

    Attributes
    ----------
    port : int
        Port of 127.0.0.1 that reaches the card.
    network : LossyNetwork
    refused : list of str
        Reasons of invalid frames from the card.
    """

    def __init__(self, library, clock_hz, address, card_port, **network):
        self.network, self.refused = LossyNetwork(**network), []
        self._address, self._card_port, self._card_mac = IPv4Address(address), card_port, None
        self._hosts = IPv4Network((address, LOOPBACK.prefixlen), strict=False)
        self._pending = []  # datagrams until the MAC address of the card is known
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self.port = self._socket.getsockname()[1]
        super().__init__(library, self._socket, LINE_HZ / clock_hz)

    def send_frame(self, frame: Frame):
        """Send any frame to the card."""
        self._send(frame.on_line())

    def _take(self):
        octets, (address, port) = self._socket.recvfrom(_LARGEST)
        for payload, source in self.network.through("in", (octets, (address, port))):
            self._pending.append((payload, self._host(source[0]), source[1]))
        self._deliver()

    def _deliver(self):
        """Send the pending datagrams, or an ARP request for the card."""
        if self._pending and self._card_mac is None:
            host = self._pending[0][1]
            request = Arp(ARP_REQUEST, _mac(host), host.packed, bytes(6), self._address.packed)
            return self.send_frame(Frame(BROADCAST, _mac(host), ARP, request.pack()))
        for payload, host, port in self._pending:
            datagram = Datagram((str(host), port), (str(self._address), self._card_port), payload)
            self.send_frame(Frame(self._card_mac, _mac(host), IPV4, datagram.pack()))
        self._pending.clear()

    def _give(self, octets):
        if not octets:
            return
        try:
            frame = Frame.off_line(octets)
            self._handle_arp(frame) if frame.kind == ARP else self._forward(frame)
        except ValueError as refused:
            self.refused.append(str(refused))

    def _handle_arp(self, frame):
        """Learn the address of the card, or answer with the address of a host."""
        arp = Arp.unpack(frame.payload)
        target = IPv4Address(arp.target)
        if arp.operation == ARP_REPLY and arp.sender == self._address.packed:
            self._card_mac = arp.sender_mac
            self._deliver()
        elif arp.operation == ARP_REQUEST and target in self._hosts:
            reply = Arp(ARP_REPLY, _mac(target), arp.target, arp.sender_mac, arp.sender)
            self.send_frame(Frame(arp.sender_mac, _mac(target), ARP, reply.pack()))

    def _forward(self, frame):
        """Send a UDP datagram to the socket of its host."""
        if frame.kind != IPV4:
            raise ValueError(f"a frame of kind {frame.kind:#06x}")
        datagram = Datagram.unpack(frame.payload)
        host, port = datagram.destination
        if frame.destination != _mac(IPv4Address(host)) or IPv4Address(host) not in self._hosts:
            raise ValueError(f"a datagram to {host} at {frame.destination.hex(':')}")
        if datagram.source != (str(self._address), self._card_port):
            raise ValueError(f"a datagram from {datagram.source}")
        place = LOOPBACK[int(IPv4Address(host)) - int(self._hosts[0])]
        for each in self.network.through("out", (datagram.payload, (str(place), port))):
            self._socket.sendto(*each)

    def _host(self, loopback):
        return self._hosts[int(IPv4Address(loopback)) - int(LOOPBACK[0])]

    def _close(self):
        super()._close()
        self._socket.close()


def _mac(host):
    """MAC address of a host: locally administered, then its IP address."""
    return b"\x06\0" + host.packed
