"""Fitted models: the contract, NumPy, and a folder for each ecosystem."""
