"""Likelihoods with derivatives in closed form: linear predictors, or one small network."""
