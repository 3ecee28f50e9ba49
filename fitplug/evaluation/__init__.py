"""Evaluation: what a given strategy costs compared with the certified optimum."""

from fitplug.evaluation.evaluation import Evaluation, Strategy
from fitplug.evaluation.evaluator import evaluate

__all__ = ["Evaluation", "Strategy", "evaluate"]
