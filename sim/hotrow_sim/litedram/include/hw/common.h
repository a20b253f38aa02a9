/* How LiteX's generated code reaches the controller's registers and passes time: in a simulation
 * both are cycles of the controller; see controller.hpp. */
#pragma once
#include <stdint.h>

void csr_write_simple(unsigned long value, unsigned long address);
unsigned long csr_read_simple(unsigned long address);
void cdelay(int cycles);
