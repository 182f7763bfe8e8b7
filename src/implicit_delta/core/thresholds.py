"""Thresholds of diagnostics: where a result is warned about or refused, one name per purpose."""

# Standard errors by which psi would move if training were finished.
DRIFT_WARNS, DRIFT_REFUSES = 0.1, 1.0
STOPPED_WARNS = 2.0  # of a training that stopped early: the half-width of a 95 % interval
# Standard error of the residuals of a stopped network, over that which its curvature implies.
# Chosen by trials: networks whose errors were right had 0.36 to 1.2, those that had memorized their
# rows 0.006 to 0.32, with errors 4 to 80 times too small.
MEMORIZED_WARNS, MEMORIZED_REFUSES = 1 / 3, 0.05
# Like a shrinkage; a Newton step on separated classes, which has no end, leaves 0.9.
DEBIASED_WARNS, DEBIASED_REFUSES = 0.25, 0.5
# Of simulated ratios, odds ratios, probabilities, variances and quantiles, those that bend by at
# most 0.08 were covered in 92 to 97 % by 95 % intervals; up to 0.25, in 86 to 96 %. That is where
# the bend is one against the objective; against the length of a step it is that of a
# parametrization too, which cancels.
BEND_WARNS, PLAIN_WARNS, BEND_REFUSES = 0.08, 0.25, 1.0
SHRINKAGE_WARNS = 0.25  # standard errors: at 0.25 a 95 % interval covers 94.3 %, at 0.5 92 %
SHIFT_WARNS = 0.5  # standard errors: a bias that turns 95 % into 92
UNCERTAIN = 0.2  # of a standard error, which turns 95 % into 88 or 98: worth a warning
FEW_REPLICATES = 0.4  # of a standard error: from four replicates; five are somebody's choice
NONLINEAR_WARNS = 0.5  # of the variance over draws; a single step leaves 0.36
CHANGE_WARNS = 0.25  # of the standard error, when the width of a smoothing is halved
REACHED = 0.95  # of the variance; a training that reaches less is warned about
# Standard errors between ends that are equal if trainings finish. For a start w standard errors
# away, of which a part q is left, psi is off by w q, and an end that is approached at half the pace
# by about w sqrt(q).
ENDS_APART = DRIFT_WARNS / (1 - REACHED) ** 0.5
FEW_CLUSTERS = 20
REJECTED = 1e-3  # p-value of Hansen's J below which the estimate itself is in doubt
