"""A check of the sensitivity that a release is charged for, independent of the code of costs."""

from fitplug.sensitivity.check import SensitivityCheck, check_sensitivity
from fitplug.sensitivity.columns import AnswerPath, make_plan_error

__all__ = ["AnswerPath", "SensitivityCheck", "check_sensitivity", "make_plan_error"]
