"""Any 64-bit id as a row of a table: admission, expiry, and a log that replays.

    from hotrow.ids import Expiry, IdMap, LeastCount

    ids = IdMap(1 << 20, LeastCount(2), Expiry(age=1000))
    batch = ids.plan(hashes)             # batch.rows are the rows to look up
    weights[batch.admitted_rows] = initial_rows(batch.admitted_ids, 64, seed=0)
    ids.done(batch.number)               # trained and written back
"""

from .initial import initial_rows
from .log import Changes, EventLog
from .map import IdMap, MappedBatch
from .policies import Expiry, LeastCount, Probability

__all__ = ["Changes", "EventLog", "Expiry", "IdMap", "LeastCount", "MappedBatch", "Probability",
           "initial_rows"]
