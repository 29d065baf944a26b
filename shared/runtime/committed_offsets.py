"""What a group has committed, asked so that an error is not taken for: nothing.

A coordinator that has just been replaced, or loads what it knows, cannot say. From version 2 of
the question on, it says that at the top of its answer, which then names no partition; aiokafka 0.14
looks for errors only beside partitions, finds none, and tells its reader that nothing was ever
committed. It would also go on asking the one that has been replaced.
"""

from typing import Any, Final

from aiokafka.consumer import consumer
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    NoError,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest

_ELSEWHERE: Final = GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError
"""Another broker has to be asked."""


def believe_no_errors() -> None:
    """Let all consumers of this process that are started from now on ask again where the answer is
    an error that may pass, and raise any other."""
    consumer.GroupCoordinator = _Coordinator


class _Coordinator(GroupCoordinator):  # type: ignore[misc]  # aiokafka is untyped
    """aiokafka's own, but for that."""

    async def _send_req(self, request: Any) -> Any:
        answer = await super()._send_req(request)
        if isinstance(request, OffsetFetchRequest):
            # The first versions have errors only beside partitions.
            self._raise_if_failed(getattr(answer, "error_code", NoError.errno))
        return answer

    def _raise_if_failed(self, code: int) -> None:
        error = for_code(code)
        if error is NoError:
            return
        if error in _ELSEWHERE:
            self.coordinator_dead()
        if error is GroupAuthorizationFailedError:
            raise error(self.group_id)
        raise error
