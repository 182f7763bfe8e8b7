"""One page with every figure next to the claims of the paper."""
