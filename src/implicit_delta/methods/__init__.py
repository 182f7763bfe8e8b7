"""Methods that find the response of the optimum to ``L + lambda * psi``, one file each."""
