"""The jobs' configuration model and logic."""
