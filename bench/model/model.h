/* Plays the plans of all ranks on a simulated machine, event by event.
 *
 *     rank   lanes, whose steps run in order; one copy engine, which serves batches and flags of all lanes,
 *            first come first served, one copy at a time
 *     GPU    a link into the switch and one out of it
 *     flow   a copy in progress. Flows of one link share it evenly
 *
 * Each wait ends late, by a random time that differs from rank to rank. So ranks drift apart, as GPUs do, and two
 * copies to one GPU may overlap even if one follows the other in the plans. Time is in us, rates are in GB/s (1e9),
 * sizes in bytes. */
#ifndef CECL_MODEL_H
#define CECL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "plan/plan.h"

/* RATE(name, default, "what it is: where the default comes from") */
#define MODEL_RATES \
    RATE(push, 389.8, \
         "GB/s of one copy to a peer: all-gather of 256 MiB on 2 GPUs less its flags") \
    RATE(pull, 371, "GB/s of one copy from a peer: hardware.md, fact 4") \
    RATE(link, 394, "GB/s of a GPU's link, each way: 2 GPUs, 256 MiB less 64 MiB") \
    RATE(batch, 1.6, "us before the first copy of a batch: one copy 2.8, less a copy's") \
    RATE(copy, 1.2, "us before each copy: hardware.md, 4 KiB, a batch of three 5.2, one 2.8") \
    RATE(flag, 1.2, "us of the engine for a flag: as a small copy") \
    RATE(more, 0.1, "us for each further flag: all-gather of 4 KiB, 4 GPUs 12.6, 2 GPUs 12.2") \
    RATE(signal, 0.1, "us until a flag is seen: all-gather of 4 KiB on 2 GPUs, 12.2 in all") \
    RATE(wait, 0.1, "us of a stream for waits that are satisfied: the same row") \
    RATE(jitter, 2.2, \
         "us, the mean of a random delay behind waits; may be 0: all-to-alls of 4 GPUs") \
    RATE(after, 1.0, "us for a stream to follow another one: assumed") \
    RATE(kernel, 5.0, "us to begin a reduction: a kernel's small call on 2 GPUs") \
    RATE(reduce, 900, "GB/s of sources that SMs reduce in their own memory: see docs/scale.md") \
    RATE(local, 1000, "GB/s of a copy within a GPU, on SMs: assumed")

struct model_rates {
#define RATE(name, value, words) double name;
    MODEL_RATES
#undef RATE
};
struct model_rates model_rates_default(void);
/* Sets a rate by name. Returns false if no rate has this name, or if the value is not a number above 0 (0 is fine
 * for jitter). */
bool model_rates_set(struct model_rates *rates, const char *name, const char *value);
/* Reads lines "name value", and # comments. Returns false if something is wrong; `trouble` says what. */
bool model_rates_read(struct model_rates *rates, const char *path, char trouble[256]);

/* The result of all runs. */
struct model_outcome {
    double us;        /* from the earliest start of a rank to the latest end */
    double first_us;  /* from the earliest start of a rank to the earliest end */
    double busiest;   /* the bytes of the busiest link, divided by what it can carry in `us` */
    const char *link; /* the busiest link: "NVLink out" or "NVLink in" */
    int link_of;      /* the number of the busiest link's GPU */
    int incast;       /* the most flows into one GPU at a time */
    uint64_t events;
};

/* Plays plans[r] of all ranks `runs` times. Run i has seed i, so results can be repeated; without jitter all runs
 * are equal. The times of `outcome` are means over the runs, as a measured time is the mean of a round's calls;
 * `incast` is the maximum. `start` [nranks]: when each rank makes the call; NULL: all at 0. Returns
 * ceclInternalError if ranks wait for each other forever, or ceclOutOfMemory. */
ceclResult_t model_play(const struct cecl_plan *plans, int nranks, const struct model_rates *rates,
                        const double *start, int runs, struct model_outcome *outcome);

#endif
