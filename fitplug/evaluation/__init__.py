"""Evaluation: what a strategy of one's own costs beside the certified optimum."""

from fitplug.evaluation.evaluation import Evaluation, Strategy
from fitplug.evaluation.evaluator import evaluate

__all__ = ["Evaluation", "Strategy", "evaluate"]
