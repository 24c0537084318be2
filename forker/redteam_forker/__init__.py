"""The forker: servers, seeds, templates, forks and change sets. It knows no model and no rubric."""
