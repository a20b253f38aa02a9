"""A whole simulated board in a network for tests; see `simulated_board`."""

import functools

from hotrow_boards.ethernet.station import Station
from hotrow_rtl.contract.link_frames import UDP_PORT

from tests.boards.simulated_board import ECP5, MEMORY_BYTES, needs_compiler

CLOCK_KHZ = 50_000  # as on the boards, beside a line of 125 MHz
IDLE_MS = 2  # of simulated time, which take seconds
STATION = Station()


@functools.cache
def board_library(config):
    """The shared library of a card on Ethernet; skips the test if tools are missing."""
    needs_compiler()
    from hotrow_boards.emit import CARD_MODULE, emit_udp_card

    from tests.support.boards import ethernet_board

    return ethernet_board.board_library(
        emit_udp_card(config, MEMORY_BYTES, CLOCK_KHZ, STATION, IDLE_MS), CARD_MODULE)


def open_board(config=ECP5, **network):
    """An `EthernetBoard` with its clock running."""
    from tests.support.boards.ethernet_board import EthernetBoard

    return EthernetBoard(board_library(config), 1000 * CLOCK_KHZ, STATION.address, UDP_PORT,
                         **network)
