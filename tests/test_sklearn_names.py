"""Names of coefficients behind pipelines: a raw name stands for the raw values of its column."""

import numpy as np
import pytest

pytest.importorskip("sklearn")
pd = pytest.importorskip("pandas")

from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

import implicit_delta as idm

RNG = np.random.default_rng(3)
Z = pd.DataFrame({"age": RNG.normal(50, 9, 80), "dose": RNG.normal(1, 1.5, 80)})
Y = 1 + 0.5 * Z.dose + RNG.normal(size=80)
SQUARES = PolynomialFeatures(2, include_bias=False)
MIXED = ColumnTransformer(
    [("scale", StandardScaler(), ["dose"])],
    remainder="passthrough",
    verbose_feature_names_out=False,
)


def double(table):
    return 2 * table


def model(*steps, table=Z):
    return idm.from_sklearn(make_pipeline(*steps, LinearRegression()).fit(table, Y), table, Y)


NAMED = {
    "nothing": ((), ("age", "dose")),
    "scaled": ((StandardScaler(),), ("standardscaler(age)", "standardscaler(dose)")),
    "nothing imputed": ((SimpleImputer(),), ("age", "dose")),
    "passed through": (("passthrough",), ("age", "dose")),
    "one scaled": ((MIXED,), ("columntransformer(dose)", "age")),
    "kept and squared": ((SQUARES,), ("age", "dose", "age^2", "age dose", "dose^2")),
    "no names": ((FunctionTransformer(double),), ("x0", "x1")),
    "no names, then scaled": ((FunctionTransformer(double), StandardScaler()), ("x0", "x1")),
    "names kept": (
        (FunctionTransformer(double, feature_names_out="one-to-one"),),
        ("functiontransformer(age)", "functiontransformer(dose)"),
    ),
}


@pytest.mark.parametrize("case", NAMED)
def test_a_raw_name_is_kept_with_its_values_alone(case):
    steps, names = NAMED[case]
    assert model(*steps).names == (*names, "intercept")


@pytest.mark.parametrize("output", ["default", "pandas"])
def test_what_is_made_of_scaled_columns_has_no_raw_name(output):
    steps = make_pipeline(StandardScaler(), SQUARES).set_output(transform=output)
    raw = {"age", "dose", "age^2", "age dose", "dose^2"}
    found = model(*(step for _, step in steps.steps)).names
    assert len(set(found)) == 6
    assert not raw & set(found)


def test_imputed_values_change_a_name():
    holes = Z.assign(dose=Z.dose.where(Z.dose > -1))
    assert model(SimpleImputer(), table=holes).names == ("age", "simpleimputer(dose)", "intercept")


def test_numbers_are_no_names_of_the_table():
    table = Z.set_axis(["x0", "x1"], axis=1)
    found = model(FunctionTransformer(double), table=table).names
    assert not {"x0", "x1"} & set(found)


def test_a_measurement_of_the_raw_coefficient_is_not_that_of_the_scaled_one():
    with pytest.warns(idm.ImplicitDeltaWarning, match="shares no parameter"):
        both = model(StandardScaler()) + idm.measurement(dose=(0.5, 0.05))
    alone = idm.infer(both, "dose")
    assert (float(alone.value), float(alone.standard_error)) == pytest.approx((0.5, 0.05))
