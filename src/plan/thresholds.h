/* All thresholds that a tuning file can replace, each with its evidence: a measurement or a calculation. tuning.h and
 * tuning.c include this file, each with its own macros:
 *
 *     THRESHOLD(id, "name", unit, least, most, "what it decides")
 *     MEASURED(id, first rank count, last, device, value, "evidence: machine, date, numbers")
 *     RECKONED(id, first rank count, last, device, value, "the calculation")
 *
 * A threshold has one or more rows. The first row that fits the device and the rank count applies, and for every device
 * and rank count some row must fit. Sizes are binary; GB/s are decimal. Rows of the file that CECL_TUNING names come
 * before the rows here. Alignments, and constants that a protocol requires, are not thresholds. */

#define H200_4 "4 x H200, CUDA 13.0, 2026-11-21: "
#define H200_2 "2 x H200, CUDA 13.0, 2026-11-21: "

/* ---- a rank's own block */

THRESHOLD(
    ALL_GATHER_RETURNED_MAX_BYTES, "all_gather.returned_max_bytes", BYTES, 0, TIB,
    "Out of place under CECL_SM_ALLOW: peers return an own block of at most this many bytes; a "
    "larger one is copied locally, on SMs.")
MEASURED(ALL_GATHER_RETURNED_MAX_BYTES, 2, 2, CUDA, 1 * MIB,
         "2 x H200, CUDA 13.0, 2026-11-22: 4 MiB returned by the peer 41.5 and 44.8 us, copied "
         "beside the pushes 26.2 (cecl_tune). Calls of at most 1 MiB are small calls.")
MEASURED(ALL_GATHER_RETURNED_MAX_BYTES, 1, EVERY, ANY, 4 * MIB,
         H200_4 "returned / copied in the batch of pushes: 64 KiB 19.6 / 22.2 us, 1 MiB 30.9 / "
                "31.6, 4 MiB 77.9 / 78.9, 16 MiB 218.5 / 177.1. Copied beside the pushes, 16 MiB "
                "takes 163.3 us; smaller blocks were not measured in this way.")

THRESHOLD(
    ALL_TO_ALL_RETURNED_MAX_BYTES, "all_to_all.returned_max_bytes", BYTES, 0, TIB,
    "Out of place under CECL_SM_ALLOW: peers return an own block of at most this many bytes; a "
    "larger one is copied locally, on SMs.")
MEASURED(ALL_TO_ALL_RETURNED_MAX_BYTES, 1, EVERY, ANY, 0,
         H200_4 "returned / copied beside the pushes: blocks of 1 MiB 42.9 / 27.8 us, 4 MiB 95.0 / "
                "49.3, 16 MiB 269.4 / 160.8, 64 MiB 970.1 / 555.6.")

/* ---- ranks that come late to a call */

THRESHOLD(LATE_WAIT_NS, "late.wait_ns", NANOSECONDS, 0, 1000000000,
          "How long a call waits until late ranks publish where their buffers lie. After that, in "
          "each pair of ranks, the later one moves the bytes of both.")
RECKONED(LATE_WAIT_NS, 1, EVERY, ANY, 20000,
         "A few times the time of a call on its host thread (3 to 10 us), and less than 50 us, the "
         "most that a late rank may cost its peers' host threads.")

THRESHOLD(
    LATE_WAIT_NS_PER_MIB, "late.wait_ns_per_mib", NANOSECONDS, 0, 1000000,
    "How much longer than late.wait_ns a call waits for late ranks for each MiB that this rank "
    "sends to its peers (the mean of what it sends and receives, if these differ), because a "
    "late call takes that much longer.")
RECKONED(LATE_WAIT_NS_PER_MIB, 1, EVERY, HOST, 0, "No calculation is on record.")
MEASURED(
    LATE_WAIT_NS_PER_MIB, 1, 2, CUDA, 2500,
    "2 x H200, CUDA 13.0, 2026-11-22: all-gather in place of 256 MiB a rank 1336.8 us if late, "
    "otherwise 700.8.")
MEASURED(LATE_WAIT_NS_PER_MIB, 3, EVERY, CUDA, 4400,
         "4 x H200, CUDA 13.0, 2026-11-26: all-gather in place of 64 MiB a rank, which sends "
         "192 MiB, 1.41 ms if late, otherwise 0.56.")

THRESHOLD(
    LATE_PENDING_NS, "late.pending_ns", NANOSECONDS, 0, 1000000000,
    "How much longer a call or a group waits for late ranks while an earlier call of this rank is "
    "pending on its GPU: the GPU has work meanwhile, and a late call takes twice the time.")
RECKONED(LATE_PENDING_NS, 1, EVERY, ANY, 500000,
         "A few times the GPU cost of a late call of 64 MiB (190 us on 2 GPUs). It is not "
         "longer, because another stream of the GPU may run out of work meanwhile.")

THRESHOLD(LATE_PENDING_SUM_NS, "late.pending_sum_ns", NANOSECONDS, 0, 1000000000,
          "How long all waits by late.pending_ns and late.wait_ns_per_mib may take together, in "
          "addition to a 64th of the program's time. A wait by late.wait_ns_per_mib counts a "
          "quarter of its time if the late rank came in that time. A wait by late.pending_ns after "
          "which the GPU has run out of work counts 16 times.")
RECKONED(LATE_PENDING_SUM_NS, 1, EVERY, ANY, 2000000,
         "Four waits by late.pending_ns. Waits make a loop longer if its hosts limit its speed: "
         "by a 64th at most, or by a 16th if each wait counts a quarter.")

THRESHOLD(
    LATE_BEHIND_NS, "late.behind_ns", NANOSECONDS, 0, 1000000000,
    "A call waits for late ranks while this rank's GPU has yet to do the calls before the last one "
    "that the late rank has made, but no longer once the GPU has stood still for this long: it may "
    "then wait for this host.")
MEASURED(
    LATE_BEHIND_NS, 1, EVERY, ANY, 50000000,
    "4 x H200, CUDA 13.0, 2026-11-27: FSDP2 with 2.4 billion parameters under cecl-run --policy "
    "auto, in turn with the value 0. Batch 1: 5 and 8 % of the calls are late (with 0: 83 and "
    "89 %), and a step takes 70.3 and 70.4 ms (with 0: 75.8 ms, and 81.2 where the trial decided "
    "for NCCL). Batch 2: 2 % and 125.5 ms (with 0: 93 % and 127.2 ms). Other values were not "
    "measured. A step has 36 "
    "calls, so between two calls a GPU stands still for far less than 50 ms. If it waits for its "
    "host, the program loses a 64th of its time at most.")

/* ---- broadcast */

THRESHOLD(BROADCAST_SPREAD_MIN_BYTES, "broadcast.spread_min_bytes", BYTES, 1, NEVER,
          "In a broadcast of at least this many bytes the root sends one piece to each peer, and "
          "peers pass pieces on; in a smaller one the root sends everything to each peer.")
RECKONED(BROADCAST_SPREAD_MIN_BYTES, 1, 2, ANY, NEVER,
         "There is no second peer to which a piece could be passed on.")
RECKONED(BROADCAST_SPREAD_MIN_BYTES, 3, EVERY, ANY, 1 * MIB,
         "The block crosses the root's link once instead of ranks - 1 times, for one more exchange "
         "of flags. Calculated from the rates of links and flags.")

/* ---- reductions */

THRESHOLD(ALL_REDUCE_SMS_WRITE_MAX_BYTES, "all_reduce.sms_write_max_bytes", BYTES, 0, TIB,
          "If SMs read the inputs of an all-reduce at the peers: up to this many bytes SMs also "
          "write the results to all ranks; copy engines push larger results.")
MEASURED(
    ALL_REDUCE_SMS_WRITE_MAX_BYTES, 1, EVERY, ANY, 32 * MIB,
    H200_4
    "written / pushed: 16 MiB 92 / 107 us, 32 MiB 170 / 178, 64 MiB equal, 256 MiB 1296 / 1163.")

THRESHOLD(
    ALL_REDUCE_SMS_END_BYTES, "all_reduce.sms_end_bytes", BYTES, 0, TIB,
    "If copy engines push an all-reduce's results, SMs write this many bytes at the end of each "
    "block, shared among the peers, while the pushes begin.")
MEASURED(ALL_REDUCE_SMS_END_BYTES, 1, EVERY, ANY, 1536 * KIB,
         H200_4 "64 MiB, if SMs write the last 1/64, 1/48, 1/32, 1/24, 1/16, 1/8 of a block: 317, "
                "316, 313 to 316.5, 315, 317, 316.5 us; if they write nothing: 321 to 325. 1/32 of "
                "a block of 16 MiB is 512 KiB for each of 3 peers.")

THRESHOLD(ALL_REDUCE_STAGED_MIN_BYTES, "all_reduce.staged_min_bytes", BYTES, 0, NEVER,
          "An all-reduce with blocks of at least this many bytes goes through staging, in chunks, "
          "even if SMs could read its inputs at the peers.")
MEASURED(ALL_REDUCE_STAGED_MIN_BYTES, 1, EVERY, ANY, 32 * MIB,
         H200_4 "blocks of 16 MiB: through staging in 2 chunks 325 to 330 us, read at the peers "
                "321 to 324; blocks of 64 MiB: 1105 and 1163.")

THRESHOLD(ALL_REDUCE_STAGED_CHUNK_MIN_BYTES, "all_reduce.staged_chunk_min_bytes", BYTES, 1, TIB,
          "An all-reduce whose inputs SMs could read goes through staging only if its chunks have "
          "this many bytes and staging holds two such chunks of each peer.")
MEASURED(ALL_REDUCE_STAGED_CHUNK_MIN_BYTES, 1, EVERY, ANY, 16 * MIB,
         H200_4 "blocks of 64 MiB in chunks of 32, 21, 16, 8 MiB: 1105, 1131, 1147, 1214 us; read "
                "at the peers 1163.")

THRESHOLD(
    ALL_REDUCE_CHUNKS, "all_reduce.chunks", CHUNKS, 1, 4096,
    "An all-reduce through staging has this many chunks, or more if these would be too large.")
MEASURED(ALL_REDUCE_CHUNKS, 1, EVERY, ANY, 2,
         H200_4 "256 MiB in 2, 3, 4, 8 chunks: 1105, 1131, 1147, 1214 us. The pushes of results "
                "hide the last reduction, so few chunks are enough.")

THRESHOLD(REDUCE_SCATTER_STAGED_MIN_BYTES, "reduce_scatter.staged_min_bytes", BYTES, 0, NEVER,
          "A reduce-scatter of blocks of at least this many bytes goes through staging, in chunks, "
          "even if SMs could read its inputs at the peers.")
MEASURED(
    REDUCE_SCATTER_STAGED_MIN_BYTES, 1, EVERY, ANY, 192 * MIB,
    H200_4
    "256 MiB: through staging in 8 chunks 2302.6 us, read at the peers 2455. Each chunk costs "
    "about 14 us, start and end cost 30 to 55 us. Sizes between 64 and 256 MiB were not measured.")

THRESHOLD(REDUCE_SCATTER_STAGED_CHUNK_MIN_BYTES, "reduce_scatter.staged_chunk_min_bytes", BYTES, 1,
          TIB,
          "A reduce-scatter whose inputs SMs could read goes through staging only if its chunks "
          "have this many bytes and staging holds two such chunks of each peer.")
MEASURED(REDUCE_SCATTER_STAGED_CHUNK_MIN_BYTES, 1, EVERY, ANY, 24 * MIB,
         H200_4 "256 MiB in 8, 16 and 24 chunks: 2327, 2385, 3107 us (24 chunks: with 64 MiB of "
                "staging); read at the peers 2455.")

THRESHOLD(REDUCE_SCATTER_CHUNKS, "reduce_scatter.chunks", CHUNKS, 1, 4096,
          "A reduce-scatter or reduce through staging has this many chunks, or more if these would "
          "be too large.")
MEASURED(REDUCE_SCATTER_CHUNKS, 1, EVERY, ANY, 8,
         H200_4 "256 MiB with 16 SMs: 8 chunks 2327 us, 16 chunks 2385; with 8 SMs: 16 chunks "
                "2443, 32 chunks 2621.")

THRESHOLD(
    REDUCE_SCATTER_HALVED_MIN_BYTES, "reduce_scatter.halved_min_bytes", BYTES, 0, TIB,
    "The last of several chunks of a reduce-scatter or reduce is halved again and again into "
    "chunks of at least this many bytes, so that the last reduction is short; 0: it is not halved.")
MEASURED(
    REDUCE_SCATTER_HALVED_MIN_BYTES, 1, EVERY, ANY, 8 * MIB,
    H200_4
    "256 MiB: the last chunk not halved 2344 us, halved down to 16, 8, 4 MiB 2312, 2302, 2309.")

THRESHOLD(REDUCTION_CHUNK_MAX_BYTES, "reduction.chunk_max_bytes", BYTES, 256, TIB,
          "A chunk of a reduction through staging has at most this many bytes, and no more than "
          "staging can hold.")
MEASURED(REDUCTION_CHUNK_MAX_BYTES, 1, EVERY, ANY, 64 * MIB,
         H200_4 "all-reduce of 1 GiB: chunks of 64 MiB (384 MiB of staging) 4231.2 us, of 32 MiB "
                "4316.2. Larger ones were not measured.")

THRESHOLD(REDUCTION_URGENT_MIN_BYTES, "reduction.urgent_min_bytes", BYTES, 0, NEVER,
          "Kernels of reductions with blocks of at least this many bytes get SMs before other "
          "waiting kernels.")
MEASURED(REDUCTION_URGENT_MIN_BYTES, 1, EVERY, ANY, 2 * MIB,
         H200_4 "reduce-scatter of 32 MiB beside a GEMM: before the GEMM's thread blocks 1.839 ms, "
                "behind them 1.924. The smallest size that gains was not measured.")

THRESHOLD(REDUCTION_READING_SMS, "reduction.reading_sms", SMS, 1, 1024,
          "This many SMs read inputs at the peers, unless CECL_MAX_SMS is set; twice as many for "
          "ceclReduceScatterAs.")
MEASURED(REDUCTION_READING_SMS, 1, EVERY, ANY, 8,
         H200_4 "reading at the peers 325 GB/s with 8, 12 and 16 SMs. " H200_2
                "alone, 12 SMs are faster (64 MiB 213.8 us; 8 SMs 267.8). A GEMM beside 12 SMs "
                "takes 1.01 to 1.10 times its time, beside 8 SMs 1.00 to 1.01.")

THRESHOLD(REDUCTION_WRITING_SMS, "reduction.writing_sms", SMS, 1, 1024,
          "This many SMs read inputs at the peers and write the results to all ranks.")
MEASURED(REDUCTION_WRITING_SMS, 1, EVERY, ANY, 16,
         H200_4 "from 16 MiB on, 8, 16 and 32 SMs are equal within the noise; 16 SMs read and "
                "write 4 MiB in 31.5 us, which was not measured with fewer.")

THRESHOLD(REDUCTION_STAGED_SMS, "reduction.staged_sms", SMS, 1, 1024,
          "This many SMs reduce data in staging.")
MEASURED(REDUCTION_STAGED_SMS, 1, EVERY, ANY, 16,
         H200_4 "reduce-scatter of 256 MiB: 16 SMs 2302.6 us, 8 SMs 2425.7.")

/* ---- small calls: one exchange through slots */

THRESHOLD(SMALL_ALL_REDUCE_MAX_BYTES, "small.all_reduce.max_bytes", BYTES, 0, 64 * MIB,
          "An all-reduce of at most this many bytes is one exchange through slots; on GPUs one "
          "kernel.")
MEASURED(SMALL_ALL_REDUCE_MAX_BYTES, 2, 2, CUDA, 512 * KIB,
         H200_2 "small: 512 KiB 8.9 us, 1 MiB 12.4 on 32 SMs; 1 MiB read and written by 16 SMs "
                "13.1: too small a gain for twice the SMs.")
MEASURED(SMALL_ALL_REDUCE_MAX_BYTES, 1, EVERY, CUDA, 256 * KIB,
         H200_4 "small: 4 KiB 5.7 us, 256 KiB 9.4; 512 KiB read and written by 16 SMs 13.7.")
RECKONED(SMALL_ALL_REDUCE_MAX_BYTES, 1, EVERY, HOST, 4 * KIB, "No calculation is on record.")

THRESHOLD(SMALL_REDUCE_SCATTER_MAX_BYTES, "small.reduce_scatter.max_bytes", BYTES, 0, 64 * MIB,
          "A reduce-scatter of blocks of at most this many bytes is one exchange through slots; on "
          "GPUs one kernel.")
MEASURED(SMALL_REDUCE_SCATTER_MAX_BYTES, 2, 2, CUDA, 512 * KIB,
         H200_2 "small: 512 KiB 9.1 us, 1 MiB 12.8 on 32 SMs; 1 MiB read by 8 SMs 14.2: too small "
                "a gain for four times the SMs.")
MEASURED(SMALL_REDUCE_SCATTER_MAX_BYTES, 1, EVERY, CUDA, 256 * KIB,
         H200_4 "small: 4 KiB 5.9 us, 256 KiB 9.6; 1 MiB read by 8 SMs 22.0.")
RECKONED(SMALL_REDUCE_SCATTER_MAX_BYTES, 1, EVERY, HOST, 4 * KIB, "As small.all_reduce.max_bytes.")

THRESHOLD(SMALL_ALL_GATHER_MAX_BYTES, "small.all_gather.max_bytes", BYTES, 0, 64 * MIB,
          "Under CECL_SM_ALLOW, an all-gather of blocks of at most this many bytes is one exchange "
          "through slots; on GPUs one kernel.")
MEASURED(SMALL_ALL_GATHER_MAX_BYTES, 2, 2, CUDA, 1 * MIB,
         H200_2 "small / by copies: 512 KiB 8.8 / 21.5 us, 1 MiB 12.1 / 24.2.")
MEASURED(SMALL_ALL_GATHER_MAX_BYTES, 1, EVERY, CUDA, 256 * KIB,
         H200_4
         "in place, small / by copies: 4 KiB 6.0 / 12.6 us, 64 KiB 7.3 / 13.1, 256 KiB 9.7 / "
         "14.8.")
RECKONED(SMALL_ALL_GATHER_MAX_BYTES, 1, EVERY, HOST, 4 * KIB, "As small.all_reduce.max_bytes.")

THRESHOLD(SMALL_ALL_TO_ALL_MAX_BYTES, "small.all_to_all.max_bytes", BYTES, 0, 64 * MIB,
          "Under CECL_SM_ALLOW, an all-to-all of blocks of at most this many bytes is one exchange "
          "through slots; on GPUs one kernel.")
MEASURED(SMALL_ALL_TO_ALL_MAX_BYTES, 2, 2, CUDA, 1 * MIB,
         H200_2 "small / by copies: 512 KiB 8.9 / 19.5 us, 1 MiB 12.6 / 19.4.")
MEASURED(SMALL_ALL_TO_ALL_MAX_BYTES, 1, EVERY, CUDA, 256 * KIB,
         H200_4 "small / by copies without SMs: 16 KiB 6.5 / 20.7 us, 256 KiB 9.9 / 24.1.")
RECKONED(SMALL_ALL_TO_ALL_MAX_BYTES, 1, EVERY, HOST, 4 * KIB, "As small.all_reduce.max_bytes.")

THRESHOLD(SMALL_SMS, "small.sms", SMS, 1, 1024,
          "A small call's kernel takes at most this many SMs. CECL_MAX_SMS can only lower this "
          "number. The SMs that waiting kernels may take of a GPU limit it, too.")
MEASURED(SMALL_SMS, 1, EVERY, ANY, 32,
         H200_4 "all-reduce of 256 KiB with 32, 24, 16 SMs: 9.3, 10.3, 10.5 us. " H200_2
                "all-reduce of 1 MiB with 64, 32, 16: 10.9, 12.4, 15.0.")

THRESHOLD(SPLITS_SMS, "splits.sms", SMS, 1, 1024,
          "A call whose splits are on the device moves rows by this many SMs, unless CECL_MAX_SMS "
          "is set.")
MEASURED(SPLITS_SMS, 1, EVERY, ANY, 16,
         "4 x H200, CUDA 13.0, 2026-11-26: a dispatch of 256 MiB a rank takes 750 us with 16 SMs, "
         "724 with 24, 698 with 32, 657 with 48; NCCL 627. Too small a gain for so many SMs.")

/* ---- urgent communicators */

THRESHOLD(URGENT_MAX_BYTES, "urgent.max_bytes", BYTES, 0, 64 * MIB,
          "In an urgent communicator, calls that only move data go through memory of the host if a "
          "rank sends at most this many bytes. Each rank has twice this much of that memory.")
MEASURED(URGENT_MAX_BYTES, 1, EVERY, CUDA, 1 * MIB,
         "2 x H200, CUDA 13.0, 2026-11-22: all-gather in place through host memory / between GPUs, "
         "beside all-gathers of 256 MiB: 4 KiB 56 / 705 us, 1 MiB 96 / 709. Alone: 4 KiB 22 / 12, "
         "1 MiB 60 / 15. Larger calls would cost more than they save.")
RECKONED(URGENT_MAX_BYTES, 1, EVERY, HOST, 64 * KIB, "Small, so that tests reach larger calls.")

/* ---- sizes of a communicator, if neither configuration nor environment sets them */

THRESHOLD(STAGING_MAX_BYTES, "staging.max_bytes", BYTES, 4 * KIB, 64 * GIB,
          "Staging has at most this many bytes; on the host device exactly this many.")
RECKONED(STAGING_MAX_BYTES, 1, EVERY, HOST, 256 * KIB, "No calculation is on record.")
MEASURED(STAGING_MAX_BYTES, 1, 5, CUDA, 192 * MIB,
         H200_4 "reduce-scatter of 256 MiB: 64 MiB of staging 3107 us, 256 MiB 2327 to 2385. 192 "
                "MiB hold two chunks of 24 MiB of each of 4 peers.")
MEASURED(STAGING_MAX_BYTES, 6, EVERY, CUDA, 64 * MIB,
         H200_4 "all-to-all of 256 MiB without SMs: 16 MiB of staging 1317 us, 64 MiB 957. With 6 "
                "ranks or more, a chunk for each peer is too small for large reductions, so more "
                "staging would not help them (calculated).")

#undef H200_4
#undef H200_2
