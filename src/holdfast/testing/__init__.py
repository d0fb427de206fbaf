"""What users and contributors test with."""

from holdfast.testing.storage import StorageTests

__all__ = ["StorageTests"]
