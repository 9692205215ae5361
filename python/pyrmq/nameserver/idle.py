"""Apache's options that have no effect here, with Apache's defaults.

Tools read them with request 319 and set them with 318, so the name server stores and returns them.
docs/nameserver.md says why each has no effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULTS = {
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "clusterTest": "false",
    "defaultThreadPoolNums": "16",
    "enableControllerInNamesrv": "false",
    "enableShutdownGracefully": "false",
    "productEnvName": "center",
    "rocketmqHome": "",
    "serverAsyncSemaphoreValue": "64",
    "serverCallbackExecutorThreads": "0",
    "serverNettyWorkerGroupEnable": "true",
    "serverOnewaySemaphoreValue": "256",
    "serverPooledByteBufAllocatorEnable": "true",
    "serverSelectorThreads": "3",
    "serverSocketBacklog": "1024",
    "serverSocketRcvBufSize": "0",
    "serverSocketSndBufSize": "0",
    "serverWorkerThreads": "8",
    "shutdownWaitTimeSeconds": "30",
    "unRegisterBrokerQueueCapacity": "3000",
    "useEpollNativeSelector": "false",
    "writeBufferHighWaterMark": "0",
    "writeBufferLowWaterMark": "0",
}
"""The options in the response of 5.5.0 to request 319 that have no effect here."""


def given(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return the pairs that are options without effect.

    Example:
        >>> given({"productEnvName": "east", "listenPort": "1"})
        {'productEnvName': 'east'}
    """
    return {key: value for key, value in pairs.items() if key in DEFAULTS}
