"""`hotrow card`: a simulated card on PCI Express, served on a socket."""

import sys
from pathlib import Path

from hotrow_rtl.config import DEFAULT_PRESET, preset


def card(subparsers):
    """Add `hotrow card`."""
    parser = subparsers.add_parser(
        "card", help="serve a simulated card on PCI Express on a socket",
        description="Verilate a preset with its PCI Express bridge, and serve it as a PCI function "
                    "on a socket by the vfio-user protocol, until Ctrl-C.")
    parser.add_argument("--socket", required=True, type=Path, metavar="PATH",
                        help="path of the socket, made and removed by the command")
    parser.add_argument("--preset", default=DEFAULT_PRESET, metavar="PRESET",
                        help="with a bus of 8 or 16 bytes")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Serve the card until an interrupt.

    Raises
    ------
    ValueError
        If the preset is unknown or its bus too wide, or the socket's path is taken.
    """
    from .card import PcieCard
    from .server import CardServer, free_socket

    free_socket(options.socket)  # before minutes of a build
    config = preset(options.preset)
    server = CardServer(PcieCard(config), options.socket)
    try:
        print(f"serving {config.name} on {options.socket}", file=sys.stderr, flush=True)
        server.serve()
    finally:
        server.close()
    return 0
