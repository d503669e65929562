/* Every symbol of NCCL up to 2.32, once; no other file repeats the list. Each function of NCCL has a second
 * name, with a p in front, for tools that replace the first name and call the second. Each function of
 * this library has such a name, too.
 *
 * COUNTED(name): collectives.c has a C function of that name, which decides for each call whether cecl
 * serves it. It returns an ncclResult_t. FOLLOWED(name, answer): follow.c has a C function of that name,
 * which passes the call on and keeps track of communicators, groups and errors. JUMP(name, answer): jump.c
 * passes the call on without looking at it. `answer` is the type that the function returns (enum
 * cecl_nccl_answer), for calls that cannot be passed on. */
#ifndef CECL_NCCL_NAMES_H
#define CECL_NCCL_NAMES_H

#define CECL_NCCL_SKIP(...) /* for a kind that is left out */

#define CECL_NCCL_NAMES(COUNTED, FOLLOWED, JUMP)                                                   \
    COUNTED(ncclAllGather)                                                                         \
    JUMP(ncclAllGatherConfig, MOVE)                                                                \
    COUNTED(ncclAllReduce)                                                                         \
    JUMP(ncclAllReduceConfig, REDUCTION)                                                           \
    COUNTED(ncclAlltoAll)                                                                          \
    JUMP(ncclAlltoAllConfig, MOVE)                                                                 \
    COUNTED(ncclBcast)                                                                             \
    COUNTED(ncclBroadcast)                                                                         \
    JUMP(ncclBroadcastConfig, MOVE)                                                                \
    FOLLOWED(ncclCommAbort, RESULT)                                                                \
    JUMP(ncclCommCount, RESULT)                                                                    \
    JUMP(ncclCommCuDevice, RESULT)                                                                 \
    JUMP(ncclCommDeregister, RESULT)                                                               \
    FOLLOWED(ncclCommDestroy, RESULT)                                                              \
    FOLLOWED(ncclCommFinalize, RESULT)                                                             \
    FOLLOWED(ncclCommGetAsyncError, RESULT)                                                        \
    FOLLOWED(ncclCommGetUniqueId, RESULT)                                                          \
    FOLLOWED(ncclCommGrow, RESULT)                                                                 \
    FOLLOWED(ncclCommInitAll, RESULT)                                                              \
    FOLLOWED(ncclCommInitRank, RESULT)                                                             \
    FOLLOWED(ncclCommInitRankConfig, RESULT)                                                       \
    FOLLOWED(ncclCommInitRankScalable, RESULT)                                                     \
    JUMP(ncclCommMemStats, RESULT)                                                                 \
    JUMP(ncclCommQueryProperties, RESULT)                                                          \
    JUMP(ncclCommRegister, RESULT)                                                                 \
    JUMP(ncclCommResume, RESULT)                                                                   \
    FOLLOWED(ncclCommRevoke, RESULT)                                                               \
    FOLLOWED(ncclCommShrink, RESULT)                                                               \
    FOLLOWED(ncclCommSplit, RESULT)                                                                \
    JUMP(ncclCommSuspend, RESULT)                                                                  \
    JUMP(ncclCommUserRank, RESULT)                                                                 \
    JUMP(ncclCommWindowDeregister, RESULT)                                                         \
    FOLLOWED(ncclCommWindowRegister, RESULT)                                                       \
    JUMP(ncclDevCommCreate, RESULT)                                                                \
    JUMP(ncclDevCommDestroy, RESULT)                                                               \
    COUNTED(ncclGather)                                                                            \
    JUMP(ncclGatherConfig, MOVE)                                                                   \
    JUMP(ncclGetCftDeviceLeInfo, RESULT)                                                           \
    JUMP(ncclGetErrorString, WORDS)                                                                \
    FOLLOWED(ncclGetLastError, WORDS)                                                              \
    JUMP(ncclGetLsaDevicePointer, RESULT)                                                          \
    JUMP(ncclGetLsaMultimemDevicePointer, RESULT)                                                  \
    JUMP(ncclGetMultimemDeviceLeInfo, RESULT)                                                      \
    JUMP(ncclGetMultimemDevicePointer, RESULT)                                                     \
    JUMP(ncclGetPeerDeviceLeInfo, RESULT)                                                          \
    JUMP(ncclGetPeerDevicePointer, RESULT)                                                         \
    JUMP(ncclGetUniqueId, RESULT)                                                                  \
    JUMP(ncclGetVersion, RESULT)                                                                   \
    JUMP(ncclGinBarrierCreateRequirement, RESULT)                                                  \
    JUMP(ncclGinInboxA2ACreateRequirement, RESULT)                                                 \
    JUMP(ncclGinOutboxCreateRequirement, RESULT)                                                   \
    FOLLOWED(ncclGroupEnd, RESULT)                                                                 \
    FOLLOWED(ncclGroupSimulateEnd, RESULT)                                                         \
    FOLLOWED(ncclGroupStart, RESULT)                                                               \
    JUMP(ncclLLA2ACalcSlots, NUMBER)                                                               \
    JUMP(ncclLLA2ACreateRequirement, RESULT)                                                       \
    JUMP(ncclLsaBarrierCreateRequirement, RESULT)                                                  \
    JUMP(ncclMemAlloc, RESULT)                                                                     \
    JUMP(ncclMemFree, RESULT)                                                                      \
    JUMP(ncclParamBind, RESULT)                                                                    \
    JUMP(ncclParamDumpAll, NOTHING)                                                                \
    JUMP(ncclParamGet, RESULT)                                                                     \
    JUMP(ncclParamGetAllParameterKeys, RESULT)                                                     \
    JUMP(ncclParamGetI16, RESULT)                                                                  \
    JUMP(ncclParamGetI32, RESULT)                                                                  \
    JUMP(ncclParamGetI64, RESULT)                                                                  \
    JUMP(ncclParamGetI8, RESULT)                                                                   \
    JUMP(ncclParamGetParameter, RESULT)                                                            \
    JUMP(ncclParamGetStr, RESULT)                                                                  \
    JUMP(ncclParamGetU16, RESULT)                                                                  \
    JUMP(ncclParamGetU32, RESULT)                                                                  \
    JUMP(ncclParamGetU64, RESULT)                                                                  \
    JUMP(ncclParamGetU8, RESULT)                                                                   \
    JUMP(ncclPutSignal, MOVE)                                                                      \
    COUNTED(ncclRecv)                                                                              \
    JUMP(ncclRedOpCreatePreMulSum, RESULT)                                                         \
    JUMP(ncclRedOpDestroy, RESULT)                                                                 \
    COUNTED(ncclReduce)                                                                            \
    JUMP(ncclReduceConfig, REDUCTION)                                                              \
    COUNTED(ncclReduceScatter)                                                                     \
    JUMP(ncclReduceScatterConfig, REDUCTION)                                                       \
    JUMP(ncclResetDebugInit, NOTHING)                                                              \
    JUMP(ncclResetDebugInitInternal, NOTHING)                                                      \
    COUNTED(ncclScatter)                                                                           \
    JUMP(ncclScatterConfig, MOVE)                                                                  \
    COUNTED(ncclSend)                                                                              \
    JUMP(ncclSetEncryption, RESULT)                                                                \
    JUMP(ncclSignal, MOVE)                                                                         \
    JUMP(ncclTeamCft, TEAM)                                                                        \
    JUMP(ncclTeamCftMultimem, TEAM)                                                                \
    JUMP(ncclTeamLsa, TEAM)                                                                        \
    JUMP(ncclTeamRail, TEAM)                                                                       \
    JUMP(ncclTeamRankToLsa, NUMBER)                                                                \
    JUMP(ncclTeamRankToWorld, NUMBER)                                                              \
    JUMP(ncclTeamWorld, TEAM)                                                                      \
    JUMP(ncclWaitSignal, MOVE)                                                                     \
    JUMP(ncclWinGetUserPtr, RESULT)

#endif
