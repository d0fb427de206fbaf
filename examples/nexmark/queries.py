"""NEXMark's queries. They are part of the package, so that ``holdfast nexmark`` can run them.

Read them in ``src/holdfast/nexmark/queries/``: each is a function of three streams, of persons, auctions
and bids, which may come from files, from Kafka, or from the generator.
"""

from holdfast.nexmark.queries import *  # noqa: F403
from holdfast.nexmark.queries import __all__ as __all__  # noqa: PLC0414 - the same names
