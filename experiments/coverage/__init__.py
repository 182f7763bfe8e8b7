"""Simulated coverage of intervals, study by study."""
