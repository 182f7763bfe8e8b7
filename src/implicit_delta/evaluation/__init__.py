"""Evaluations: psi bound to a model, and wrappers for averages, random psi and steps."""

from implicit_delta.evaluation.average import Average
from implicit_delta.evaluation.datagrid import datagrid
from implicit_delta.evaluation.evaluation import Evaluation
from implicit_delta.evaluation.picked import parameters
from implicit_delta.evaluation.questions import (
    Question,
    average_comparison,
    average_prediction,
    average_slope,
    predictions,
)
from implicit_delta.evaluation.replicated import Replicated
from implicit_delta.evaluation.smoothed import Smoothed
from implicit_delta.evaluation.statistic import Statistic

__all__ = [
    "Average",
    "Evaluation",
    "Question",
    "Replicated",
    "Smoothed",
    "Statistic",
    "average_comparison",
    "average_prediction",
    "average_slope",
    "datagrid",
    "parameters",
    "predictions",
]
