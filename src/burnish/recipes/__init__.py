"""Recipes: experiments as Python that constructs real objects. `quickstart` comes first."""
