"""Ten questions put to eight libraries: lines of code, CPU seconds, error against a reference.

Decided before anything was run; what changed afterwards is listed at the end.

Questions
    Small fixed data sets (`data`), one file each, read by Python and R alike. Each question fixes
    what is asked and which standard error: of the model, robust (HC0), clustered (CR0), with the
    Hessian or with the Gauss-Newton matrix. Finite-sample factors are left out, so that there is
    one right number. Two or three questions are there because a peer is best at them: median
    regression (statsmodels, R), inverse probability weights (statsmodels, Delicatessen), the
    odds ratio (car), logits of a network (laplace-torch).
Reference
    `truth`: the definition in 50-digit arithmetic by mpmath, with derivatives of its own; for the
    median regression, whose standard error has no single definition, the spread of the estimate
    over simulated data sets of the known law. No contestant takes part.
Error
    |se / reference - 1|; of an interval the larger of the two misses over its width, of a
    covariance matrix the largest miss over the product of the two standard errors.
Scripts
    ``scripts/<library>.py`` and ``scripts/car.R``: ``fit_3`` fits the model of question 3, as one
    would without a wish for error bars, and ``ask_3`` gets the answer, value and standard error.
    A library that fits as it answers has ``ask_3`` alone, and networks come trained. Written as
    the library's own documentation would: the shortest honest code. Where the library gives
    curvature or covariance and the user writes the gradient or the formula, the script says
    ``HAND`` and why; where it cannot, ``CANNOT`` and why, with the words of its error or of its
    documentation.
Lines
    Lines of code in the bodies of both functions, after ruff format: not blank, not comments, not
    the ``def`` line; imports and the reading of data do not count.
Seconds
    CPU time of ``ask`` alone and of ``fit`` and ``ask``, on one thread, after a warm-up; every
    repeat fits again, so that nothing is cached. The library and ours run in two processes that
    take turns, seven rounds of at least 50 ms each (one if it takes more than a second); what is
    stored is the median over rounds of its time over ours. Ours against itself, in two
    processes, shows the noise.
Better
    A peer is better in lines if it has fewer, in seconds if it takes less than 1 / 1.1 of ours,
    in error if ours is above 1e-6 and its own is smaller. These rows are marked on the site.

Changed after trial runs, which had shown answers and times of most scripts: rounds take turns
between two processes that stay, where first every answer was to run in a process of its own
between two of ours, which took too long to start; one round instead of seven (three, for a while)
where an answer takes more than a second; imports within a function do not count, either. After
the table was seen: rows of ours with an error above 1e-6 are marked, too, which is the median
regression.
"""
