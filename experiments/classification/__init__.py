"""The paper's classifiers, and confidence in the cost downstream of them."""
