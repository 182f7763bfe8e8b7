"""How the response of the optimum to ``L + lambda * psi`` is found, one file per method."""
