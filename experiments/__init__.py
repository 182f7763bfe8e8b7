"""The paper, reproduced and surpassed: one module per figure or table.

In every module ``run(config, seed)`` returns records and ``plot(records)`` draws them;
``reproduce(results, quick=, seed=, n_jobs=, data=)`` does both and leaves CSV files and pictures in
the folder `results`. ``python -m experiments`` calls it for all of them.
"""
