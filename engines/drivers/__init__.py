"""Drivers perform the steps that the core asks for: with threads (`threads`) or with asyncio (`aio`).

**How a step travels.** A loop of `core.loops` and a lifecycle of `core.lifecycle` are generators: each yields a step
and is sent what came of it. The loop yields `Call` (fetch a batch), `Start` (hand it to the slots), `Await` (until
there is room, or until all have ended), `Sleep`, `Flush` and `Drain`; `loop.Loop` performs these. Each transaction has
a lifecycle of its own in a slot (`slots`), which yields `Call` (one attempt of a handler) and `Sleep` (the delay
before the next one), and whose outcome is acknowledged to the connector; `run.Run` performs these. Both do for threads
and for asyncio all that is alike: deadlines, classification, the backlog, what is given back, the report. What is not
alike they ask their driver for, again as generators, with the `requests`: a pair (call this function), `Ask` (call it
within this limit), `Wait` and `Pause`. So a driver is one `send` loop with a branch for each request: it serves those
of the loop in the caller's thread or task, those of a lifecycle in the thread or task of its slot. What every
transaction passes is told apart by `type` and `isinstance`: a `match` of classes takes several times as long. Spans
and metrics are in `tracing`, around every step; where nobody listens, the lifecycle does not even say when a stage
begins and ends.

**Who may block.** In `threads`, everybody but whoever holds the lock of the driver's condition: the caller's thread
waits on that condition, slots block in handlers and in the connector. In `aio`, nobody: handlers and `_async` methods
are awaited, and a connector's plain methods run in a thread. `stop`, `cut`, arrivals and lost leases may come from any
thread; a signal handler may call `stop` in the middle of anything.

**What a limit does.** Three limits never add up: of the attempt, of the transaction, of the loop; the nearest counts
(`attempts`). A handler runs in the thread of its slot; `watcher` knows when it must have ended, and then lets another
thread go on with the lifecycle, which stands still meanwhile. A thread cannot be ended, so its late result reaches
nobody. A coroutine runs in the task of its slot; `timer` cancels it, and if it does not end at once lets another task
go on, while it has a grace to tidy up. What the loop asks for in the caller's own thread or task, in whose place
nobody can go on, is left behind by `timeouts`, which returns on time whatever the call does. A process of an executor
is killed.

**What is abandoned.** Calls that run on after their limit occupy the machine. Each task counts them over all its
loops; while there are as many as slots, nothing begins, and after a grace the loop ends with `AbandonedAttemptsError`,
so that a supervisor replaces the process.

**What is given back.** When the loop ends, every transaction has either been acknowledged or is released: what has not
started at once, what was cut once it has really ended. What another worker has by now is neither.
"""
