"""Personas: a cast of rows, dispositions, scripts and the actors that speak them."""
