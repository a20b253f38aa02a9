"""A whole board in simulation: a card's Verilog with the pins of RGMII, and a loopback socket.

The driver opens the socket as it would a card in a network. Between the two are Ethernet frames:
each address 127.0.0.n, with each of its ports, is a host n in the card's network, which asks and
answers ARP and sends and takes UDP.
"""

import socket
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from ..link.ethernet import ARP, ARP_REPLY, ARP_REQUEST, BROADCAST, IPV4, Arp, Datagram, Frame
from ..link.rough_network import RoughNetwork
from .board import SimulatedBoard, compile_board

HARNESS = Path(__file__).with_name("ethernet_board.cpp")
CELLS = Path(__file__).with_name("ethernet_cells.v")
PINS = {"clk": "input", "rst": "input", "rx_clk": "input", "rx_ctl": "input",
        "rx_data": "input [3:0]", "tx_clk": "output", "tx_ctl": "output", "tx_data": "output [3:0]"}
LINE_HZ = 125e6
LOOPBACK = IPv4Network("127.0.0.0/24")
_LARGEST = 2048  # bytes of a datagram


def board_library(verilog: str, module: str) -> Path:
    """Path of the shared library of a card, built unless the cache has it.

    Parameters
    ----------
    verilog : str
        Of a module with the pins clk and rst, and those of RGMII with the prefix `pins__`; without
        the FPGA's own cells.
    module : str
        Its name.

    Raises
    ------
    ToolMissing, CompilerError, BuildError
        As those of a device.
    """
    connected = ", ".join(f".{name if name in ('clk', 'rst') else f'pins__{name}'}({name})"
                          for name in PINS)
    return compile_board(verilog + CELLS.read_text(), HARNESS, PINS,
                         f"{module} board({connected});")


class EthernetBoard(SimulatedBoard):
    """A simulated board that runs until it is unplugged; a context manager.

    Parameters
    ----------
    library : Path
        See `board_library`.
    clock_hz : float
        Of the card, against which the line's 125 MHz are reckoned.
    address : str
        Of the card, in a network of 256 addresses.
    card_port : int
        Of UDP, where the card waits.
    network : dict
        Parameters of `RoughNetwork`, through which datagrams come and go.

    Members
    -------
    port : int
        Of 127.0.0.1, where the card is reached.
    network : RoughNetwork
    cycles : int
        Clock cycles so far.
    refused : list of str
        Why frames of the card were none, for tests.
    """

    def __init__(self, library, clock_hz, address, card_port, **network):
        self.network, self.refused = RoughNetwork(**network), []
        self._address, self._card_port, self._card_mac = IPv4Address(address), card_port, None
        self._hosts = IPv4Network((address, LOOPBACK.prefixlen), strict=False)
        self._waiting = []  # datagrams for a card whose MAC address is not known yet
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        self.port = self._socket.getsockname()[1]
        super().__init__(library, self._socket, LINE_HZ / clock_hz)

    def send_frame(self, frame: Frame):
        """Let any frame come to the card, for tests."""
        self._send(frame.on_line())

    def _take(self):
        octets, (address, port) = self._socket.recvfrom(_LARGEST)
        for payload, source in self.network.through("in", (octets, (address, port))):
            self._waiting.append((payload, self._host(source[0]), source[1]))
        self._deliver()

    def _deliver(self):
        """Send what waits, or ask where to."""
        if self._waiting and self._card_mac is None:
            host = self._waiting[0][1]
            asked = Arp(ARP_REQUEST, _mac(host), host.packed, bytes(6), self._address.packed)
            return self.send_frame(Frame(BROADCAST, _mac(host), ARP, asked.pack()))
        for payload, host, port in self._waiting:
            datagram = Datagram((str(host), port), (str(self._address), self._card_port), payload)
            self.send_frame(Frame(self._card_mac, _mac(host), IPV4, datagram.pack()))
        self._waiting.clear()

    def _give(self, octets):
        if not octets:
            return
        try:
            frame = Frame.off_line(octets)
            self._hear(frame) if frame.kind == ARP else self._pass_on(frame)
        except ValueError as refused:
            self.refused.append(str(refused))

    def _hear(self, frame):
        """ARP: learn where the card is, or tell where a host is."""
        heard = Arp.unpack(frame.payload)
        target = IPv4Address(heard.target)
        if heard.operation == ARP_REPLY and heard.sender == self._address.packed:
            self._card_mac = heard.sender_mac
            self._deliver()
        elif heard.operation == ARP_REQUEST and target in self._hosts:
            told = Arp(ARP_REPLY, _mac(target), heard.target, heard.sender_mac, heard.sender)
            self.send_frame(Frame(heard.sender_mac, _mac(target), ARP, told.pack()))

    def _pass_on(self, frame):
        """UDP: to the socket of the host that it is for."""
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
        self._socket.close()


def _mac(host):
    """Of a host: locally administered, with its address behind."""
    return b"\x06\0" + host.packed
