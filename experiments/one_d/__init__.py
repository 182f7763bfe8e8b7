"""The paper's two regressions in one dimension."""
