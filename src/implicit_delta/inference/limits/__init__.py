"""One-sided limits: from the likelihood ratio, by CLs, and calibrated by simulation."""
