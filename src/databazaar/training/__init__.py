"""How the answers of a round become gains and the next model, one file a family (databazaar/learners has settings)."""

from databazaar.training.protocol import Learned, Lesson, Memory, Model, Training

__all__ = ["Learned", "Lesson", "Memory", "Model", "Training"]
