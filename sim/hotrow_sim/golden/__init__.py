"""Function of each unit in NumPy, without time; the packages follow those of `hotrow_rtl`."""
