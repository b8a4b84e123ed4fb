"""From a name to a model."""

from __future__ import annotations

from ..errors import ConfigurationError, UnknownModel
from .base import Model


def resolve_model(model: Model | str | None) -> Model:
    """The model that a name means; a model is passed on as it is.

    Raises `UnknownModel` for a name that no provider claims, and `ConfigurationError` for what is no model at all.
    """
    if model is None:
        raise UnknownModel("No model was given.", todo="Pass a Model: Agent(model).")
    if isinstance(model, str):
        raise UnknownModel(f"No provider for {model!r} is installed.", todo="Pass a Model object.")
    if not isinstance(model, Model):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"{model!r} is not a model.", todo="Pass something with name, price and stream().")
    return model
