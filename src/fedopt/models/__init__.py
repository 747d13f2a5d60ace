"""The paper's networks, and any module as one flat vector."""

from fedopt.models.emnist import Autoencoder, CharacterCNN
from fedopt.models.flat import Flat

__all__ = ["Autoencoder", "CharacterCNN", "Flat"]
