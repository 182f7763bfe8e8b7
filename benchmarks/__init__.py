"""Costs side by side with other ways to the same number, as ratios within one run."""
