"""Likelihoods with derivatives in closed form: one linear predictor, or one small network."""
