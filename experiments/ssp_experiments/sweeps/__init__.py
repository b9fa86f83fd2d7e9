"""Sweeps: many runs that differ in some settings, side by side, into one table."""
