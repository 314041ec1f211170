"""The modules of bench/compare."""
