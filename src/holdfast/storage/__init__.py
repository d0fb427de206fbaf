"""Where checkpoints live."""

from holdfast.storage.base import NotFoundError, ObjectInfo, Storage

__all__ = ["NotFoundError", "ObjectInfo", "Storage"]
