"""Keys of a property file that are not options: those that Apache has, and probable typos.

The lists are the setters of Apache's configuration classes over 4.6.0 to 5.5: for the name server
`NamesrvConfig`, `NettyServerConfig` and `NettyClientConfig`, for the broker `BrokerConfig`,
`BrokerIdentity`, `MessageStoreConfig`, `AuthConfig` and the same two of Netty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def warn_of_unknown(role: str, keys: Iterable[str], known: Iterable[str], source: str) -> None:
    """Warn of keys without effect: those that only Apache's server uses, and unknown ones.

    Args:
        role: `name server` or `broker`.
        keys: the keys of the file.
        known: Apache's names of the existing options.
        source: where the keys come from.

    Example:
        >>> warn_of_unknown("broker", ["brokerNmae"], ["brokerName"], "broker.conf")
    """
    theirs = frozenset(_APACHE_KEYS.get(role, "").split())
    idle, unknown = [], []
    options = list(known)
    for key in keys:
        if key in options:
            continue
        if key in theirs:
            idle.append(f"`{key}`")
            continue
        from difflib import get_close_matches

        near = get_close_matches(key, options, n=1) or get_close_matches(key, theirs, n=1)
        unknown.append(f"`{key}`" + (f" (did you mean `{near[0]}`?)" if near else ""))
    if not unknown and not idle:
        return
    from pyrmq._client import log

    logger = log.get("pyrmq.config")
    if unknown:
        logger.warning("%s: unknown to the %s and ignored: %s", source, role, ", ".join(unknown))
    if idle:
        logger.warning(
            "%s: without effect on this %s, though Apache's has them: %s",
            source,
            role,
            ", ".join(idle),
        )


_APACHE_KEYS = {
    "name server": """
        bindAddress channelNotActiveInterval clientAsyncSemaphoreValue
        clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout
        clientOnewaySemaphoreValue clientPooledByteBufAllocatorEnable
        clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clientSocketRcvBufSize
        clientSocketSndBufSize clientWorkerThreads clusterTest configBlackList configStorePath
        connectTimeoutMillis defaultThreadPoolNums defaultThreadPoolQueueCapacity
        deleteTopicWithBrokerRegistration disableCallbackExecutor disableNettyWorkerGroup
        enableAllTopicList enableControllerInNamesrv enableReconnectForGoAway
        enableShutdownGracefully enableTopicList enableTransparentRetry kvConfigPath listenPort
        maxReconnectIntervalTimeSeconds needWaitForService notifyMinBrokerIdChanged
        orderMessageEnable productEnvName returnOrderTopicConfigToBroker rocketmqHome
        scanAvailableNameSrv scanNotActiveBrokerInterval serverAsyncSemaphoreValue
        serverCallbackExecutorThreads serverChannelMaxIdleTimeSeconds
        serverNettyWorkerGroupEnable serverOnewaySemaphoreValue
        serverPooledByteBufAllocatorEnable serverSelectorThreads serverSocketBacklog
        serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
        shutdownWaitTimeSeconds socksProxyConfig supportActingMaster
        unRegisterBrokerQueueCapacity useEpollNativeSelector useTLS waitSecondsForService
        writeBufferHighWaterMark writeBufferLowWaterMark
    """,
    "broker": """
        accessMessageInMemoryHotRatio accessMessageInMemoryMaxRatio accountStatsEnable
        accountStatsPrintZeroValues ackMessageThreadPoolNums ackThreadPoolQueueCapacity
        aclCacheExpiredSecond aclCacheMaxNum aclCacheRefreshSecond aclEnable
        adminBrokerThreadPoolNums adminBrokerThreadPoolQueueCapacity allAckInSyncStateSet
        allowRecallWhenBrokerNotWriteable appendAckAsync appendCkAsync asyncLearner
        asyncSendEnable authConfigPath authenticationEnabled authenticationMetadataProvider
        authenticationProvider authenticationStrategy authenticationWhitelist
        authorizationEnabled authorizationMetadataProvider authorizationProvider
        authorizationStrategy authorizationWhitelist autoCreateSubscriptionGroup
        autoCreateTopicEnable autoDeleteUnusedStats autoMessageVersionOnTopicLen
        batchDispatchRequestThreadPoolNums batchWriteKvCqSize bindAddress
        bitMapLengthConsumeQueueExt bottomMostCompressionTypeForConsumeQueueStore
        broadcastOffsetExpireMaxSecond broadcastOffsetExpireSecond brokerClusterName
        brokerConfigPath brokerElectionPriority brokerFastFailureEnable brokerHeartbeatInterval
        brokerIP1 brokerIP2 brokerId brokerName brokerNotActiveTimeoutMillis brokerPermission
        brokerRole brokerTopicEnable cgColdReadThreshold channelExpiredTimeout
        channelNotActiveInterval checkCRCOnRecover checkSyncStateSetPeriod
        cleanFileForciblyEnable cleanOfflineBrokerInterval cleanResourceInterval
        cleanRocksDBDirtyCQIntervalMin cleanSwapedMapInterval clearRetryTopicWhenDeleteTopic
        clientAsyncSemaphoreValue clientCallbackExecutorThreads clientChannelMaxIdleTimeSeconds
        clientCloseSocketIfTimeout clientManageThreadPoolNums
        clientManagerThreadPoolQueueCapacity clientOnewaySemaphoreValue
        clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
        clientWorkerThreads clusterName clusterTopicEnable coldCtrStrategyEnable
        coldDataFlowControlEnable coldDataScanEnable combineAssignOffsetCQType
        combineCQEnableCheckSelf combineCQLoadingCQTypes combineCQMaxExtraSearchCommitLogFiles
        combineCQPreferCQType commercialBaseCount commercialBigCount commercialEnable
        commercialSizePerMsg commercialTimerCount commercialTransCount commitCommitLogLeastPages
        commitCommitLogThoroughInterval commitIntervalCommitLog commitLogForceSwapMapInterval
        commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
        compactionMappedFileSize compactionScheduleInternal compactionThreadNum
        compatibleWithOldNameSrv compressedRegister configBlackList configManagerVersion
        configName connectTimeoutMillis consumerFallbehindThreshold consumerManageThreadPoolNums
        consumerManagerThreadPoolQueueCapacity consumerOffsetUpdateVersionStep controllerAddr
        controllerHeartBeatTimeoutMills correctLogicMinOffsetForceInterval
        correctLogicMinOffsetSleepInterval dataReadAheadEnable debugLockEnable
        defaultMessageRequestMode defaultPopShareQueueNum defaultQueryMaxNum
        defaultTopicQueueNums delayOffsetUpdateVersionStep deleteCommitLogFilesInterval
        deleteConsumeQueueFilesInterval deleteFileBatchMax deleteWhen
        destroyMapedFileIntervalForcibly disableCallbackExecutor
        disableConsumeIfConsumerReadSlowly disableNettyWorkerGroup disappearTimeAfterStart
        diskFallRecorded diskMaxUsedSpaceRatio diskSpaceCleanForciblyRatio
        diskSpaceWarningLevelRatio dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
        duplicationEnable enableAcceleratedRecovery enableAsyncReput enableAutoInSyncReplicas
        enableBatchPush enableBroadcastOffsetStore enableBuildConsumeQueueConcurrently
        enableCalcFilterBitMap enableCleanExpiredOffset enableCompaction enableConnectionMetrics
        enableConsumeQueueExt enableControllerMode enableCreateSysGroup enableDLegerCommitLog
        enableDetailStat enableFastChannelEventProcess enableLagAndDlqMetrics enableLmq
        enableLmqStats enableLogConsumeQueueRepeatedlyBuildWhenRecover enableMessageStoreMetrics
        enableMixedMessageType enableMultiDispatch enableNetWorkFlowControl
        enableNotifyAfterPopOrderLockRelease enableNotifyBeforePopCalculateLag enablePopBatchAck
        enablePopBufferMerge enablePopLog enablePopMessageThreshold enablePopMetrics
        enablePropertyFilter enableReconnectForGoAway enableRegisterProducer enableRemoteEscape
        enableRemotingMetrics enableRequestMetrics enableRetryTopicV2 enableRocksDBLog
        enableRunningFlagsInFlush enableScheduleAsyncDeliver enableScheduleMessageStats
        enableShutdownGracefully enableSingleTopicRegister enableSkipLongAwaitingAck
        enableSlaveActingMaster enableSplitMetadata enableSplitRegistration enableStatsMetrics
        enableTransactionMetrics enableTransparentRetry enabledAppendPropCRC
        endTransactionPoolQueueCapacity endTransactionThreadPoolNums estimateAccumulation
        expectConsumerNumUseFilter fastFailIfNoBufferInStorePool fetchControllerAddrByDnsLookup
        fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fetchNamesrvAddrInterval
        fileReservedTime filterDataCleanTimeSpan filterServerNums filterSupportRetry
        flushCommitLogLeastPages flushCommitLogThoroughInterval flushCommitLogTimed
        flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval
        flushConsumerOffsetHistoryInterval flushConsumerOffsetInterval flushDelayOffsetInterval
        flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue
        flushLeastPagesWhenWarmMapedFile forceRegister forceVerifyPropCRC forwardTimeout
        globalColdReadThreshold haFlowControlEnable haHousekeepingInterval haListenPort
        haMasterAddress haMaxGapNotInSync haMaxTimeSlaveNotCatchup haSendHeartbeatInterval
        haSlaveFallbehindMax haTransferBatchSize heartbeatThreadPoolNums
        heartbeatThreadPoolQueueCapacity highSpeedMode inBrokerContainer inSyncReplicas
        initAuthenticationUser initPopOffsetByCheckMsgInMem innerClientAuthenticationCredentials
        isolateLogEnable listenPort litePullMessageEnable litePullMessageThreadPoolNums
        litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
        loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
        logicQueueForceSwapMapInterval logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum
        logicalDiskSpaceCleanForciblyThreshold longPollingEnable mappedFileSizeCommitLog
        mappedFileSizeConsumeQueue mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog
        mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
        maxBatchDeleteFilesNum maxChecksumRange maxConsumeQueueScan maxDelayTime
        maxErrorRateOfBloomFilter maxFilterMessageSize maxHaTransferByteInSecond maxHashSlotNum
        maxIndexNum maxLmqConsumeQueueNum maxMessageSize maxMsgsNumBatch maxOffsetMapSize
        maxPopPollingSize maxReconnectIntervalTimeSeconds maxRecoveryCommitlogFiles
        maxSlaveResendLength maxStatsIdleTimeInMinutes maxTopicLength
        maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory
        maxTransferCountOnMessageInDisk maxTransferCountOnMessageInMemory memTableFlushInterval
        memTableFlushIntervalMs messageDelayLevel messageIndexEnable messageIndexSafe
        messageStorePlugIn metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
        metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
        metricsGrpcExporterTarget metricsInDelta metricsLabel metricsOtelCardinalityLimit
        metricsPromExporterHost metricsPromExporterPort migrateAuthFromV1Enabled
        minInSyncReplicas msgTraceTopicName namesrvAddr notifyConsumerIdsChangedEnable
        offsetCheckInSlave osPageCacheBusyTimeOutMills popCkMaxBufferSize
        popCkOffsetMaxQueueSize popCkStayBufferTime popCkStayBufferTimeOut
        popConsumerFSServiceInit popConsumerKVServiceEnable popConsumerKVServiceInit
        popConsumerKVServiceLog popFromRetryProbability popInflightMessageThreshold
        popLongPollingForceNotifyInterval popPollingMapExpireTimeSeconds popPollingMapSize
        popPollingSize popResponseReturnActualRetryTopic popReviveMaxAttemptTimes
        popReviveMaxReturnSizePerRead preferredLeaderId printChannelGroups
        printChannelGroupsMinNum processReplyMessageThreadPoolNums pullBatchMaxMessageCount
        pullMessageThreadPoolNums pullThreadPoolQueueCapacity putConsumeQueueDataByFileChannel
        putMessageFutureThreadPoolNums putMessageTimeout putMsgIndexHightWater
        putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
        readOnlyCommitLogStorePaths readUnCommitted realTimeNotifyConsumerChange
        realTimePersistRocksDBConfig recallMessageEnable recheckReputOffsetFromCq
        recoverConcurrently recoverThreadPoolNums redeleteHangedFileInterval regionId
        registerBrokerTimeoutMills registerNameServerPeriod rejectPullConsumerEnable
        rejectTransactionMessage replicasPerDiskPartition replyThreadPoolQueueCapacity
        retrieveMessageFromPopRetryTopicV1 reviveAckWaitMs reviveInterval reviveMaxSlow
        reviveQueueNum reviveScanTime rocketmqHome rocksdbCQDoubleWriteEnable
        rocksdbCompressionType rocksdbFlushWalFrequency rocksdbWalFileRollingThreshold
        sampleCountThreshold sampleSteps scanAvailableNameSrv
        scheduleAsyncDeliverMaxPendingLimit scheduleAsyncDeliverMaxResendNum2Blocked
        searchBcqByCacheEnable sendHeartbeatTimeoutMillis sendMessageThreadPoolNums
        sendThreadPoolQueueCapacity serverAsyncSemaphoreValue serverCallbackExecutorThreads
        serverChannelMaxIdleTimeSeconds serverLoadBalancerEnable serverNettyWorkerGroupEnable
        serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
        serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
        shortPollingTimeMills shutdownWaitTimeSeconds skipPreOnline skipWhenCKRePutReachMaxTimes
        slaveReadEnable slaveTimeout socksProxyConfig spinLockCollisionRetreatOptimalDegree
        splitMetadataSize splitRegistrationSize startAcceptSendRequestTimeStamp
        statRocksDBCQIntervalSec statefulAuthenticationCacheExpiredSecond
        statefulAuthenticationCacheMaxNum statefulAuthorizationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum storePathBrokerIdentity storePathCommitLog
        storePathDLedgerCommitLog storePathEpochFile storePathRootDir storeReplyMessageEnable
        storeType subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
        syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFlushTimeout syncFromLastFile
        syncMasterFlushOffsetWhenStartup timerColdDataCheckIntervalMs timerCongestNumEachSlot
        timerEnableCheckMetrics timerEnableRetryUntilSuccess timerFlushIntervalMs
        timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec
        timerMetricSmallThreshold timerPrecisionMs timerProgressLogIntervalMs
        timerPutMessageThreadNum timerRollWindowSlot timerSkipUnknownError timerStopEnqueue
        timerWheelEnable topicQueueLockNum totalReplicas traceOn traceTopicEnable
        transactionCheckInterval transactionCheckMax transactionMetricFlushInterval
        transactionOpBatchInterval transactionOpMsgMaxSize transactionTimeOut
        transferMetadataJsonToRocksdb transferMsgByHeap transferOffsetJsonToRocksdb
        transientStorePoolEnable transientStorePoolSize travelCqFileNumWhenGetMessage
        updateNameServerAddrPeriod useABSLock useEpollNativeSelector usePIDColdCtrStrategy
        useReentrantLockWhenPutMessage useServerSideResetOffset useStaticSubscription useTLS
        userCacheExpiredSecond userCacheMaxNum userCacheRefreshSecond
        validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue waitTimeMillsInHeartbeatQueue
        waitTimeMillsInLitePullQueue waitTimeMillsInPullQueue waitTimeMillsInSendQueue
        waitTimeMillsInTransactionQueue wakeCommitWhenPutMessage wakeFlushWhenPutMessage
        warmMapedFileEnable writeBufferHighWaterMark writeBufferLowWaterMark writeWithoutMmap
    """,
}
