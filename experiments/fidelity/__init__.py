"""Standard errors of networks over the spread of retrainings, setting by setting."""
