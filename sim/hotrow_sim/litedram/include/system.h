/* LiteX's generated headers ask for this file; a simulation has no processor to describe. */
#pragma once
