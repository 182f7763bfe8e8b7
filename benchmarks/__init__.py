"""What things cost, side by side with other ways to do them, as ratios within one run."""
