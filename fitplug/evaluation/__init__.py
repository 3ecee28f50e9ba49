"""Evaluation: what a strategy of one's own costs beside the certified optimum."""

from fitplug.evaluation.evaluation import Evaluation
from fitplug.evaluation.evaluator import evaluate
from fitplug.evaluation.strategy import Strategy

__all__ = ["Evaluation", "Strategy", "evaluate"]
