"""Numbers of parameters up to which d x d matrices are made, one name per purpose."""

DENSE_LIMIT = 2500  # a curvature that is used again and again is formed and factorized
CHEAP_LIMIT = 500  # one that only scales a step, or a climb that may need several of them
GAUSS_NEWTON_LIMIT = 5000  # a Gauss-Newton matrix, made of one Jacobian per row
