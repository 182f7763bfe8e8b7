"""
Effects through a scikit-learn pipeline: religion and affairs
=============================================================

A pipeline encodes labels, bends numbers by splines, scales them and fits a regression. Its
coefficients belong to columns that nobody asked about; questions are about the columns of the
*table*: "what if everybody were as religious as can be?" The answer goes through all transformers,
with a standard error.

``pip install "implicit-delta[sklearn,statsmodels,plot]"``; statsmodels for the data only.
"""

import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, SplineTransformer, StandardScaler

import implicit_delta as idm

# %%
# **The data.** Fair's survey of 1974 on extramarital affairs, a classic of count and binary
# regression: 6366 women, of whom a third report one. How does that change with religiousness, and
# with the years of marriage?

women = sm.datasets.fair.load_pandas().data
women = women.assign(
    affair=(women["affairs"] > 0).astype(int),
    children=np.where(women["children"] > 0, "some", "none"),
)
X = women[["age", "yrs_married", "religious", "rate_marriage", "children"]]

columns = make_column_transformer(
    (OneHotEncoder(drop="first"), ["children"]),
    (SplineTransformer(n_knots=4, include_bias=False), ["age"]),
    (StandardScaler(), ["yrs_married", "religious", "rate_marriage"]),
)
logistic = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
pipeline = make_pipeline(columns, logistic).fit(X, women["affair"])
model = idm.from_sklearn(pipeline, X, women["affair"])

# %%
# **A comparison.** From the least to the most religious, everything else as it is, in percentage
# points; then separately for women with and without children.

print(idm.infer(model, idm.average_comparison("religious", values=(1, 4))))
by_children = idm.infer(model, idm.average_comparison("religious", values=(1, 4), by="children"))
print(by_children)

# %%
# **Is the difference between the groups more than noise?** Estimates compose.

print(by_children.contrast([1, -1]))

# %%
# **A slope, through the spline.** Per year of age, on average over the women, and for each label of
# the column that the encoder has replaced.

print(idm.infer(model, idm.average_slope("age", by="children")))
print(idm.infer(model, idm.average_comparison("children", values=("none", "some"), how="ratio")))

# %%
# **A curve.** Predictions on a grid of ages; all other columns are at their mean or mode.

grid = idm.datagrid(X, age=np.linspace(18, 42, 25))
curve = idm.infer(model, idm.predictions(grid))
band = curve.confidence_interval(simultaneous=True, transform="logit")
plt.plot(grid["age"], curve.value)
plt.fill_between(grid["age"], band.low, band.high, alpha=0.3)
plt.xlabel("age")
plt.ylabel("probability of an affair")
plt.show()

# %%
# **A forest answers the same question**, by refits: it has no likelihood, and no standard errors
# otherwise. A few hundred replicates are the rule; this page makes twenty of a small forest.


def fit(data):
    X, y = data
    forest = RandomForestClassifier(30, min_samples_leaf=50, random_state=0)
    return make_pipeline(clone(columns), forest).fit(X, y)


forest = idm.bootstrap(
    fit,
    (X, women["affair"]),
    idm.average_comparison("religious", values=(1, 4)),
    replicates=20,
    jackknife=False,
    rng=0,
)
print(forest)
assert forest.confidence_interval().high < 0
