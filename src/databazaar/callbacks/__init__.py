"""Callbacks that carry a run to where experiments are watched: TensorBoard and MLflow."""

from databazaar.callbacks.mlflow import MLflowCallback
from databazaar.callbacks.tensorboard import TensorBoardCallback
from databazaar.market.callback import Callback

__all__ = ["Callback", "MLflowCallback", "TensorBoardCallback"]
