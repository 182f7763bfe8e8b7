"""Steps of a pipeline that have seen y: holding these fixed ignores a choice made by the data."""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from implicit_delta.core.warn import warn
from implicit_delta.errors import ImplicitDeltaWarning, UnsupportedModelError

SUPERVISED_MODULES = {
    "feature_selection",
    "cross_decomposition",
    "discriminant_analysis",
    "model_selection",
}
SUPERVISED = {"TargetEncoder", "NeighborhoodComponentsAnalysis"}
UNSUPERVISED = {"VarianceThreshold"}
LIBRARY = "sklearn."
ORDERS = 6  # of y: a choice of one column in two is the same in all with probability 1/64
CHANGED = 1e-8  # of the size of a column: rounding changes less
ADVICE = (
    "The standard errors would be those of columns fixed in advance, and too small: the interval "
    "of the best of 50 columns of noise holds zero in 8 % of data sets, not in 95 %. Fit the step "
    "to other rows than the rest. To treat its outcome as given all the same: "
    "`from_sklearn(pipeline[-1], pipeline[:-1].transform(X), y)`."
)


def refuse_supervised(pipeline: Any, X: Any, y: Any) -> None:
    """Refuse a pipeline with a step, before the last, whose fit depends on y.

    Steps of scikit-learn are known by their tags and classes. Those of others are fitted again,
    without y and with y in other orders: a difference shows that they use it.
    """
    for i, (name, step) in enumerate(pipeline.steps[:-1]):
        parts = list(_parts(step))
        for part, frozen in parts:
            if _is_supervised(part):
                _object(name, part, frozen)
        if any(_is_foreign(part) and not frozen for part, frozen in parts):
            _refuse_dependence(name, step, pipeline[:i].transform(X) if i else X, y)


def _parts(step: Any, frozen: bool = False) -> Iterator[tuple[Any, bool]]:
    """Yield the transformers inside a step, and whether each was fitted before the pipeline."""
    if step is None or isinstance(step, str):
        return
    kind = type(step).__name__
    if kind == "FrozenEstimator":
        yield from _parts(step.estimator, frozen=True)
    elif kind in ("Pipeline", "FeatureUnion", "ColumnTransformer"):
        for entry in getattr(step, _members(step)):
            yield from _parts(entry[1], frozen)
    else:
        yield step, frozen or bool(getattr(step, "prefit", False))


def _members(composite: Any) -> str:
    """Name the attribute that lists the fitted members of a composite."""
    names = ("transformers_", "transformer_list", "steps")
    return next(name for name in names if hasattr(composite, name))


def _is_supervised(step: Any) -> bool:
    kind = type(step)
    if kind.__name__ in UNSUPERVISED and not _is_foreign(step):
        return False
    module = kind.__module__.removeprefix(LIBRARY).split(".")[0]
    listed = kind.__name__ in SUPERVISED or module in SUPERVISED_MODULES
    return (listed and not _is_foreign(step)) or _requires_target(step)


def _requires_target(step: Any) -> bool:
    """Read the tags: whether y has to be given to fit, as to classifiers and regressors."""
    try:
        from sklearn.utils import get_tags

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old classes that are told about new tags
            tags: Any = get_tags(step)
    except (ImportError, AttributeError, TypeError):
        tags = getattr(step, "_get_tags", dict)()
        return bool(tags.get("requires_y", False))
    return bool(tags.target_tags.required)


def _is_foreign(step: Any) -> bool:
    """Whether somebody else has written it."""
    return not type(step).__module__.startswith(LIBRARY)


def _object(name: str, step: Any, frozen: bool) -> None:
    kind = type(step).__name__
    if frozen:
        warn(
            f"The step {name!r} of the pipeline holds a {kind} that was fitted before, with the "
            "help of some y. That is right if its rows were others than these, and makes standard "
            "errors too small if they were the same.",
            ImplicitDeltaWarning,
        )
        return
    raise UnsupportedModelError(
        f"The step {name!r} of the pipeline, {kind}, was fitted with the help of y. {ADVICE}"
    )


def _refuse_dependence(name: str, step: Any, X: Any, y: Any) -> None:
    """Fit a step again without y and with y in other orders, and compare what it makes of X."""
    targets, rng = np.asarray(y), np.random.default_rng(0)
    try:
        given, again = _outcome(step, X, targets), _outcome(step, X, targets)
    except Exception as error:  # whatever the step of a stranger raises
        _cannot_tell(name, step, f"could not be fitted again ({error!r:.80})")
        return
    if not _same(given, again):
        _cannot_tell(name, step, "differs from fit to fit")
        return
    for other in (None, *(rng.permutation(targets) for _ in range(ORDERS))):
        if not _same(given, _outcome_or(given, step, X, other)):
            raise UnsupportedModelError(
                f"The step {name!r} of the pipeline, {type(step).__name__}, was fitted with the "
                "help of y: without y, or with y in another order, it makes other columns. "
                f"{ADVICE}"
            )


def _outcome_or(given: Any, step: Any, X: Any, y: Any) -> Any:
    """Return what a step makes of another y, if it takes it: some only check that there is one."""
    try:
        return _outcome(step, X, y)
    except Exception:
        return given


def _outcome(step: Any, X: Any, y: Any) -> Any:
    """Fit a copy as a pipeline does, with the same random numbers each time, and transform."""
    from sklearn.base import clone

    fresh = clone(step) if hasattr(step, "get_params") else deepcopy(step)
    state = np.random.get_state()  # noqa: NPY002 - that of random_state=None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            np.random.seed(0)  # noqa: NPY002
            getattr(fresh, "fit_transform", fresh.fit)(X, y)
            return _dense(fresh.transform(X))
        finally:
            np.random.set_state(state)  # noqa: NPY002


def _dense(values: Any) -> Any:
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values)


def _same(one: Any, other: Any) -> bool:
    if one.shape != other.shape:
        return False
    if one.dtype.kind not in "fiub":
        return bool(np.all(one == other))
    size = CHANGED * np.max(abs(one), axis=0, initial=0.0)
    return bool(np.all(abs(one - other) <= size))


def _cannot_tell(name: str, step: Any, reason: str) -> None:
    warn(
        f"The step {name!r} of the pipeline, {type(step).__name__}, {reason}, so that nothing "
        "tells whether its fit used y. If it did, standard errors are too small.",
        ImplicitDeltaWarning,
    )
