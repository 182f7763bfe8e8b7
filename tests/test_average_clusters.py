"""Clusters of evaluation rows: several questions about one document."""

import numpy as np
import pytest
from scipy.stats import t as student

import implicit_delta as idm

RNG = np.random.default_rng(0)
Y = RNG.normal(size=50)
DOCUMENTS = RNG.normal(size=12)
REPEATS = RNG.integers(1, 5, size=12)
LABELS = np.repeat([f"document {g}" for g in range(12)], REPEATS)
MODEL = idm.from_loglik(lambda m: -((Y - m[0]) ** 2) / 2, start=[0.0])


def average(values, **options):
    return idm.Average(lambda m: values - m[0], **options)


def test_copies_of_a_row_in_a_cluster_tell_no_more_than_one():
    once = idm.infer(MODEL, average(DOCUMENTS))
    thrice = idm.infer(
        MODEL, average(np.repeat(DOCUMENTS, 3), clusters=np.repeat(np.arange(12), 3))
    )
    assert thrice.budget == pytest.approx(once.budget, rel=1e-9)


def test_clusters_of_one_row_are_no_clusters():
    plain, own = (idm.infer(MODEL, average(DOCUMENTS, clusters=c)) for c in (None, np.arange(12)))
    assert own.budget == pytest.approx(plain.budget, rel=1e-9)
    share = own.budget["evaluation"] / own.budget["total"]
    assert own.df == pytest.approx(11 / share**4, rel=1e-9)  # Welch: only this part has 11


def test_error_is_that_of_sums_within_clusters():
    values = np.repeat(DOCUMENTS, REPEATS) + 0.1 * RNG.normal(size=LABELS.size)
    sums = [np.sum((values - values.mean())[label == LABELS]) for label in np.unique(LABELS)]
    expected = np.sqrt(12 / 11 * np.sum(np.square(sums))) / values.size
    found = idm.infer(MODEL, average(values, clusters=LABELS))
    assert found.budget["evaluation"] == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("sample", ["independent", "unknown"])
def test_a_profile_is_not_narrower_than_clusters_allow(sample):
    psi = average(np.repeat(DOCUMENTS, REPEATS), sample=sample, clusters=LABELS)
    low, high = idm.profile(MODEL, psi).confidence_interval()
    error = idm.infer(MODEL, psi).standard_error
    assert (high - low) / 2 >= 0.999 * student.ppf(0.975, 11) * error


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (np.zeros(12), "only one cluster"),
        (np.arange(11), "one label for each"),
        ([None, *range(11)], "missing"),
    ],
)
def test_labels_that_say_nothing_are_refused(labels, words):
    with pytest.raises(ValueError, match=words):
        idm.infer(MODEL, average(DOCUMENTS, clusters=labels))


def test_training_rows_have_the_clusters_of_the_model():
    with pytest.raises(ValueError, match="clusters=labels"):
        average(DOCUMENTS, sample="training", clusters=LABELS)
