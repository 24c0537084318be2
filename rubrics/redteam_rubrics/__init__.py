"""Rubrics: rules, verdicts and the statistics over them."""
