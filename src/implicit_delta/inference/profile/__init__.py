"""Likelihood-ratio intervals of anything computed from a fitted model, and joint regions."""
