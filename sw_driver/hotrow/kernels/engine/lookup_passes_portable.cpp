#define HOTROW_ISA portable
#define HOTROW_TARGET
#include "lookup_passes_body.hpp"
