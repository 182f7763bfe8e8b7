"""Doors onto the one road from a question to an answer: infer, refit, polish, profile, compare."""
