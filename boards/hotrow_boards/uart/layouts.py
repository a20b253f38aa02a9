"""Units of time on a serial line.

A `period` is the duration of eight bits in clock cycles: one bit lasts `period` eighths of a cycle.
Counting eighths supports bit rates that do not divide the clock.
"""

PERIOD_BITS = 18  # 9600 baud at 200 MHz
EIGHTHS = 8
MIN_PERIOD = 4 * EIGHTHS  # four cycles a bit: enough to sample its middle
SYNC_INTERVALS = 4  # from falling edge to falling edge of one sync byte, two bits each
