"""The handoff: what has been appended at a source enters the forward buffer here, once and in order.

Who receives pulls. Whatever ends a process, another one goes on from the cursor: nothing is lost, nothing comes twice.
"""

from facts.forwarding.handoff import Handed as Handed, hand_over as hand_over
from facts.forwarding.running import Forwarding as Forwarding
from facts.forwarding.sources import Source as Source, source_of as source_of
