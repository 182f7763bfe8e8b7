"""Solvers, maximizers, derivatives and tracing of array functions: no statistics, no frameworks."""
