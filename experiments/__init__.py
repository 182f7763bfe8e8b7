"""The paper, reproduced and surpassed: one folder per part, one module per figure or table.

In a module of a figure ``run(config, seed)`` returns records and ``plot(records)`` draws them;
``reproduce(results, quick=, seed=, n_jobs=, data=)`` does both and leaves CSV files and pictures in
a subfolder of `results` with the name of the part. ``python -m experiments`` calls it for all of
them, then writes the report. Coverage beyond the paper has a command of its own:
``python -m experiments.coverage``.
"""
