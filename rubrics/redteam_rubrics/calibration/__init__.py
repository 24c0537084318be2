"""Calibration: how far a judge's verdicts can be trusted, measured against labels. Pure.

A `Pair` is what people and a judge said of one conversation by one rule. `measure` counts pairs,
`Calibration` binds the figures to the judge's model and prompt, and `calibration_of` says whether they speak
of a given judge. `corrected` takes a judge's measured mistakes out of a pass rate that it gave.
"""

from __future__ import annotations

from redteam_rubrics.calibration.agreement import Kappa, Share, cohen_kappa
from redteam_rubrics.calibration.calibration import Calibrated, Calibration, calibration_of
from redteam_rubrics.calibration.correction import Corrected, corrected
from redteam_rubrics.calibration.figures import Figures, Mistakes, Pair, measure
from redteam_rubrics.calibration.people import Between, Label, agreements, consensus
from redteam_rubrics.calibration.verbosity import Correlation, rank_correlation

__all__ = [
    "Between",
    "Calibrated",
    "Calibration",
    "Corrected",
    "Correlation",
    "Figures",
    "Kappa",
    "Label",
    "Mistakes",
    "Pair",
    "Share",
    "agreements",
    "calibration_of",
    "cohen_kappa",
    "consensus",
    "corrected",
    "measure",
    "rank_correlation",
]
