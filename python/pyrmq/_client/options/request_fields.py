"""The option `request_fields`: header fields that a client adds to each of its requests."""

from __future__ import annotations

from collections.abc import Mapping

from pyrmq.errors import ConfigError

__all__ = ["added_fields"]

_MAX_BYTES = 4096
"""Names and values of all fields: they are sent with every request."""
_MAX_FIELDS = 64
"""Servers of ours close a connection on which a request has more than 1,024 fields."""

_OWN_NAMES = """
AccessKey SecurityToken Signature _UNIQUE_KEY_QUERY a acceptStandardJsonOnly addTopicCount
advertisedAddresses attemptId attributes b batch batchUniqId beginTimestamp bname bodyCrc32
bornHost bornTime bornTimestamp boundaryType brokerAddr brokerId brokerName c changed cleanOffset
clientAddr clientID clientId cluster clusterName commitLogOffset commitOffset commitOrRollback
committed compareGroup compressed confirmOffset consumerGroup count d defaultTopic
defaultTopicQueueNums delayLevel destGroup durability e electionPriority enableActingMaster
endTimestamp epoch exp expType expressionType extraInfo f filter filterGroups flag forbiddenType
force fromTransactionCheck g group groupName groupSysFlag h haBrokerAddr haServerAddr hasMsg
heartbeatTimeoutMillis heartbeatTimeoutMills i index indexLastUpdatePhyoffset
indexLastUpdateTimestamp indexType initMode invisibleTime isForce isOrder j jstackEnable k key l
lastKey liteTopic lo m masterAddr maxMsgBytes maxMsgNums maxNum maxOffset maxReconsumeTimes
minBrokerAddr minBrokerId minOffset msgId msgOffsetInfo n namespace nextBeginOffset ns nsd offline
offlineBrokerAddr offset offsetDelta offsetMsgId order orderCountInfo originMsgId originTopic oway
perm policyType pollTime pollingFull pollingNum popTime producerGroup properties
proxyFrowardClientId queueId queueOffset readQueueNums readable recallHandle reconsumeTimes
requestSource resource resourceFilter restNum reviveQid setZeroIfNotFound srcGroup startOffsetInfo
statsKey statsName storeHost storeTimestamp subVersion subject subjectFilter subscription
suggestWhichBrokerId suspend suspendTimeoutMillis sysFlag timestamp topic topicFilterType
topicList topicSysFlag totalTopicNum tranStateTableOffset transactionId unitMode username value
version wipeTopicCount writeQueueNums
"""
"""Fields of headers and signatures. A test compares them with the header structures."""

_USED = frozenset(_OWN_NAMES.split())


def added_fields(given: object) -> list[tuple[str, str]]:
    """Check the option; return the fields in their order.

    Raises:
        ConfigError: It is no mapping of texts, a name is illegal or in use, or there are too many
            or too long fields. The error never contains a value, which may be a secret.

    Example:
        >>> added_fields({"tenant": "kitchen"})
        [('tenant', 'kitchen')]
    """
    if given is None:
        return []
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"option `request_fields` is of type {type(given).__name__}, it must be a mapping of "
            "names to texts"
        )
    if len(given) > _MAX_FIELDS:
        raise ConfigError(
            f"option `request_fields` has {len(given)} fields, it may have {_MAX_FIELDS}: every "
            "request carries them"
        )
    fields: list[tuple[str, str]] = []
    length = 0
    for name, value in given.items():
        if not isinstance(name, str) or not name or not all("!" <= one <= "~" for one in name):
            raise ConfigError(
                f"option `request_fields` has the name {name!r}, it must be of printable "
                "characters of ASCII without a space"
            )
        if name.startswith(("@", "$")):
            raise ConfigError(
                f"option `request_fields` has the name {name!r}: names that begin with `@` or `$` "
                "are instructions to the JSON parser of Apache's brokers; choose another"
            )
        if name in _USED:
            raise ConfigError(
                f"option `request_fields` has the name {name!r}, which is that of a field of "
                "RocketMQ's own: choose another"
            )
        if not isinstance(value, str) or not value.isprintable():
            raise ConfigError(
                f"the value of {name!r} in option `request_fields` is not a text of printable "
                "characters"
            )
        length += len(name) + len(value.encode())
        fields.append((name, value))
    if length > _MAX_BYTES:
        raise ConfigError(
            f"option `request_fields` has {length} bytes, it may have {_MAX_BYTES}: every request "
            "carries them"
        )
    return fields
