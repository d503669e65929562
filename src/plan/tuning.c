/* The built-in table, and the choice of the row that applies. */
#include "plan/tuning.h"

#include "util/siphash.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)
#define NEVER CECL_TUNING_NEVER
#define EVERY CECL_TUNING_EVERY_RANK

#define MEASURED(id, first, last, device, value, evidence)
#define RECKONED(id, first, last, device, value, evidence)
#define THRESHOLD(id, name, unit, least, most, decision) \
    {name, CECL_TUNING_##unit, least, most, decision},
const struct cecl_threshold_info cecl_thresholds[CECL_TUNE_COUNT] = {
#include "plan/thresholds.h"
};
#undef THRESHOLD
#undef MEASURED
#undef RECKONED

#define THRESHOLD(id, name, unit, least, most, decision)
#define MEASURED(id, first, last, device, value, evidence) \
    {CECL_TUNE_##id, first, last, CECL_TUNING_##device, value, evidence, true, 0},
#define RECKONED(id, first, last, device, value, evidence) \
    {CECL_TUNE_##id, first, last, CECL_TUNING_##device, value, evidence, false, 0},
const struct cecl_tuning_row cecl_tuning_rows[] = {
#include "plan/thresholds.h"
};
const size_t cecl_tuning_nrows = sizeof(cecl_tuning_rows) / sizeof(cecl_tuning_rows[0]);

static const struct cecl_tuning_row *find(const struct cecl_tuning_row *rows, size_t nrows,
                                          enum cecl_threshold which, enum cecl_tuning_device device,
                                          int nranks)
{
    for (size_t i = 0; i < nrows; i++)
        if (rows[i].which == which && cecl_tuning_fits(&rows[i], device, nranks))
            return &rows[i];
    return NULL;
}

const struct cecl_tuning_row *cecl_tuning_row_of(const struct cecl_tuning_file *file,
                                                 enum cecl_threshold which,
                                                 enum cecl_tuning_device device, int nranks)
{
    const struct cecl_tuning_row *row =
        file ? find(file->rows, file->nrows, which, device, nranks) : NULL;
    return row ? row : find(cecl_tuning_rows, cecl_tuning_nrows, which, device, nranks);
}

void cecl_tuning_resolve(const struct cecl_tuning_file *file, enum cecl_tuning_device device,
                         int nranks, struct cecl_tuning *tuning)
{
    for (int t = 0; t < CECL_TUNE_COUNT; t++)
        tuning->value[t] = cecl_tuning_row_of(file, (enum cecl_threshold)t, device, nranks)->value;
}

struct cecl_tuning cecl_tuning_default(enum cecl_tuning_device device, int nranks)
{
    struct cecl_tuning tuning;
    cecl_tuning_resolve(NULL, device, nranks, &tuning);
    return tuning;
}

int64_t cecl_tuning_hash(const struct cecl_tuning *tunings, size_t count)
{
    /* a fixed key, because equal values must give equal hashes on all ranks */
    static const uint8_t key[16] = "cecl tuning";
    return (int64_t)(cecl_siphash(key, tunings, count * sizeof(*tunings)) & INT64_MAX);
}

uint64_t cecl_tuning_largest_small(const struct cecl_tuning *tuning)
{
    static const enum cecl_threshold smalls[] = {
        CECL_TUNE_SMALL_ALL_REDUCE_MAX_BYTES, CECL_TUNE_SMALL_REDUCE_SCATTER_MAX_BYTES,
        CECL_TUNE_SMALL_ALL_GATHER_MAX_BYTES, CECL_TUNE_SMALL_ALL_TO_ALL_MAX_BYTES};
    uint64_t largest = 0;
    for (size_t i = 0; i < sizeof(smalls) / sizeof(smalls[0]); i++)
        if (cecl_tuning_get(tuning, smalls[i]) > largest)
            largest = cecl_tuning_get(tuning, smalls[i]);
    return largest;
}
