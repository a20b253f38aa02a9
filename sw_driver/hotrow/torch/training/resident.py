"""Mode `resident`: all tables in the trainer's own memory, and no device."""

from .collection_trainer import CollectionTrainer


class ResidentTrainer(CollectionTrainer):
    """Trains the tables where they are, with the arithmetic of every other mode."""

    def __init__(self, model, tables, optimizer):
        super().__init__(model, tables, optimizer)
