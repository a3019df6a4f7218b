"""Answers that are sent while they are made."""

from collections.abc import AsyncIterator

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse


class StreamedAnswer(StreamingHttpResponse):
    """An answer in parts that are made one by one, under ASGI too: there Django would make them all before the first.

    Its parts are made in the thread of the request, which has the connection to the database.
    """

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = iter(self)
        make = sync_to_async(lambda: next(parts, None))
        while (part := await make()) is not None:
            yield part
