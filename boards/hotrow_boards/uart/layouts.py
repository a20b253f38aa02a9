"""How the units of a serial line count time.

A `period` is the time of eight bits in clock cycles, and so that of one bit in eighths of a cycle:
units that count eighths keep to any rate without its being a whole number of cycles.
"""

PERIOD_BITS = 18  # eight bits of 9600 baud at 200 MHz
EIGHTHS = 8
LEAST_PERIOD = 4 * EIGHTHS  # four cycles a bit: enough to find its middle
SYNC_INTERVALS = 4  # from falling edge to falling edge of one sync byte, two bits each
