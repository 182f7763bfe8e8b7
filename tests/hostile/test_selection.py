"""Pipelines with a step that has seen y are refused; those without pass."""

import numpy as np
import pandas as pd
import pytest

import implicit_delta as idm

pytest.importorskip("sklearn")

from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.cross_decomposition import CCA, PLSRegression
from sklearn.decomposition import PCA, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import (
    RFE,
    GenericUnivariateSelect,
    SelectFdr,
    SelectFromModel,
    SelectKBest,
    SelectPercentile,
    SequentialFeatureSelector,
    VarianceThreshold,
    f_regression,
)
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)
from sklearn.random_projection import GaussianRandomProjection

RNG = np.random.default_rng(4)
N = 120
X = RNG.normal(size=(N, 5))
Y = X[:, 0] + RNG.normal(size=N)
BINARY = (Y > 0).astype(int)
SITE = (np.arange(N) % 4)[:, None]


class Top(TransformerMixin, BaseEstimator):
    """Keeps the column that goes best with y, by hand and without a tag."""

    def fit(self, X, y=None):
        self.kept_ = int(np.argmax(abs(np.corrcoef(X.T, y)[-1, :-1])))
        return self

    def transform(self, X):
        return X[:, [self.kept_]]


class TopOrWidest(Top):
    """The same, with a choice of its own if there is no y."""

    def fit(self, X, y=None):
        if y is not None:
            return super().fit(X, y)
        self.kept_ = int(np.argmax(np.var(X, axis=0)))
        return self


class MeanOfTargets(TransformerMixin, BaseEstimator):
    """Uses y in a way that its order does not change."""

    def fit(self, X, y=None):
        self.size_ = 1.0 if y is None else float(np.mean(np.square(y)))
        return self

    def transform(self, X):
        return X / self.size_


class Plain:
    """No scikit-learn base class, no tags: it centers."""

    def fit(self, X, y=None):
        self.center_ = np.mean(X, axis=0)
        return self

    def transform(self, X):
        return X - self.center_


class PlainTop(Plain):
    def fit(self, X, y):
        self.center_ = X.mean(axis=0) + np.sign(np.corrcoef(X.T, y)[-1, :-1])
        return self


class Centered(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.center_ = np.mean(X, axis=0)
        return self

    def transform(self, X):
        return X - self.center_


class ChecksTargets(Centered):
    """Insists on y, and does not use it."""

    def fit(self, X, y):
        assert y is not None
        return super().fit(X)


class Jittered(Centered):
    """Different from fit to fit, but for the seed of NumPy's global generator."""

    def fit(self, X, y=None):
        self.center_ = np.random.normal(size=X.shape[1])  # noqa: NPY002
        return self


class Fresh(Centered):
    """Different from fit to fit, whatever is done."""

    def fit(self, X, y=None):
        self.center_ = np.random.default_rng().normal(size=X.shape[1])
        return self


class Own(SelectKBest):
    """A class of somebody else that derives from one of scikit-learn."""


SUPERVISED = {
    "SelectKBest": SelectKBest(f_regression, k=2),
    "SelectPercentile": SelectPercentile(f_regression, percentile=40),
    "SelectFdr": SelectFdr(f_regression, alpha=0.9),
    "GenericUnivariateSelect": GenericUnivariateSelect(f_regression, mode="k_best", param=2),
    "SelectFromModel": SelectFromModel(Lasso(0.01)),
    "RFE": RFE(LinearRegression(), n_features_to_select=2),
    "SequentialFeatureSelector": SequentialFeatureSelector(
        LinearRegression(), n_features_to_select=2, cv=2
    ),
    "PLSRegression": PLSRegression(2).fit(X, Y),  # scikit-learn itself cannot fit it in the middle
    "CCA": CCA(1).fit(X, Y),
    "nested": make_pipeline(StandardScaler(), SelectKBest(f_regression, k=2)),
    "union": make_union(PCA(2), SelectKBest(f_regression, k=1)),
    "columns": ColumnTransformer([("some", SelectKBest(f_regression, k=1), [0, 1, 2])]),
    "nested twice": make_pipeline(
        FeatureUnion([("a", ColumnTransformer([("s", RFE(LinearRegression()), [0, 1])]))])
    ),
    "by hand": Top(),
    "by hand, nested": make_pipeline(StandardScaler(), Top()),
    "by hand, of columns": make_column_transformer((Top(), [0, 1, 2])),
    "by hand, without y too": TopOrWidest(),
    "the mean of y": MeanOfTargets(),
    "no base class": PlainTop(),
    "derived": Own(f_regression, k=2),
}
UNSUPERVISED = {
    "StandardScaler": StandardScaler(),
    "PCA": PCA(2),
    "KernelPCA": KernelPCA(2, kernel="rbf"),
    "VarianceThreshold": VarianceThreshold(),
    "SimpleImputer": SimpleImputer(),
    "SplineTransformer": SplineTransformer(4, include_bias=False),
    "PolynomialFeatures": PolynomialFeatures(2, include_bias=False),
    "QuantileTransformer": QuantileTransformer(n_quantiles=20),
    "FunctionTransformer": FunctionTransformer(np.tanh),
    "lambda": FunctionTransformer(lambda X: X**3),
    "GaussianRandomProjection": GaussianRandomProjection(3),
    "passthrough": "passthrough",
    "union": make_union(StandardScaler(), FunctionTransformer(np.exp)),
    "columns": ColumnTransformer(
        [("some", StandardScaler(), [0, 1]), ("no", "drop", [2])], remainder="passthrough"
    ),
    "by hand": Centered(),
    "by hand, nested": make_pipeline(StandardScaler(), Centered()),
    "insists on y": ChecksTargets(),
    "random": Jittered(),
}


@pytest.mark.parametrize("name", SUPERVISED)
def test_a_step_that_has_seen_y_is_refused(name):
    pipe = Pipeline([("first", SUPERVISED[name]), ("last", LinearRegression())])
    if hasattr(SUPERVISED[name], "x_weights_"):
        pipe[-1].fit(pipe[0].transform(X), Y)
    else:
        pipe.fit(X, Y)
    with pytest.raises(idm.UnsupportedModelError, match=r"'first'.*help of y.*clone"):
        idm.from_sklearn(pipe, X, Y)


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_a_step_that_has_not_seen_y_passes(name):
    pipe = Pipeline([("first", UNSUPERVISED[name]), ("last", LinearRegression())]).fit(X, Y)
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    found = idm.infer(idm.from_sklearn(pipe, X, Y), lambda p: p.predict(X[:2]))
    np.testing.assert_allclose(found.value, pipe.predict(X[:2]), rtol=1e-8)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.parametrize(
    ("step", "data"),
    [
        (LinearDiscriminantAnalysis(), X),
        (NeighborhoodComponentsAnalysis(2, max_iter=5), X),
        (TargetEncoder(), SITE),
    ],
    ids=lambda value: type(value).__name__,
)
def test_supervised_steps_of_classifiers_are_refused(step, data):
    pipe = make_pipeline(step, LogisticRegression()).fit(data, BINARY)
    with pytest.raises(idm.UnsupportedModelError, match="help of y"):
        idm.from_sklearn(pipe, data, BINARY)


def test_categories_as_columns_pass():
    pipe = make_pipeline(OneHotEncoder(drop="first"), LinearRegression()).fit(SITE, Y)
    assert idm.infer(idm.from_sklearn(pipe, SITE, Y), lambda p: p.predict(SITE[:1])[0]).value


def test_a_pipeline_in_a_pipeline_is_looked_into():
    inner = make_pipeline(SelectKBest(f_regression, k=2), LinearRegression())
    pipe = make_pipeline(StandardScaler(), inner).fit(X, Y)
    with pytest.raises(idm.UnsupportedModelError, match="selectkbest"):
        idm.from_sklearn(pipe, X, Y)


def test_a_later_step_gets_the_columns_it_was_fitted_to():
    frame = pd.DataFrame(X, columns=list("abcde"))
    pipe = make_pipeline(StandardScaler(), PCA(3), Top(), LinearRegression()).fit(frame, Y)
    with pytest.raises(idm.UnsupportedModelError, match=r"'top'.*another order"):
        idm.from_sklearn(pipe, frame, Y)
    pipe = make_pipeline(PCA(3), Centered(), LinearRegression()).fit(frame, Y)
    assert idm.from_sklearn(pipe, frame, Y).d == 4


def test_what_cannot_be_told_is_said():
    pipe = make_pipeline(Fresh(), LinearRegression()).fit(X, Y)
    with pytest.warns(idm.ImplicitDeltaWarning, match="differs from fit to fit"):
        idm.from_sklearn(pipe, X, Y)


def test_a_choice_made_before_is_doubted():
    frozen = pytest.importorskip("sklearn.frozen").FrozenEstimator
    chosen = SelectKBest(f_regression, k=2).fit(X, Y)
    pipe = make_pipeline(frozen(chosen), LinearRegression()).fit(X, Y)
    with pytest.warns(idm.ImplicitDeltaWarning, match="fitted before"):
        idm.from_sklearn(pipe, X, Y)


def test_the_advice_works():
    pipe = make_pipeline(SelectKBest(f_regression, k=2), LinearRegression()).fit(X, Y)
    given = idm.from_sklearn(pipe[-1], pipe[:-1].transform(X), Y)
    assert given.d == 3
    rows = RNG.integers(len(X), size=len(X))
    assert clone(pipe).fit(X[rows], Y[rows]).predict(X[:1]).shape == (1,)
