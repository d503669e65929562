/* Rates of the model: defaults, options and files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

struct model_rates model_rates_default(void)
{
    return (struct model_rates){
#define RATE(name, value, words) .name = (value),
        MODEL_RATES
#undef RATE
    };
}

static double *rate_of(struct model_rates *rates, const char *name)
{
#define RATE(known, value, words) \
    if (strcmp(name, #known) == 0) \
        return &rates->known;
    MODEL_RATES
#undef RATE
    return NULL;
}

bool model_rates_set(struct model_rates *rates, const char *name, const char *value)
{
    double *rate = rate_of(rates, name);
    char *end;
    const double number = strtod(value, &end);
    const bool may_be_0 = rate == &rates->jitter;
    if (!rate || end == value || *end || !(may_be_0 ? number >= 0 : number > 0) || number > 1e12)
        return false;
    *rate = number;
    return true;
}

bool model_rates_read(struct model_rates *rates, const char *path, char trouble[256])
{
    char line[256], name[64], value[64];
    FILE *in = fopen(path, "r");
    if (!in) {
        snprintf(trouble, 256, "%.200s cannot be read", path);
        return false;
    }
    bool fine = true;
    for (int at = 1; fine && fgets(line, sizeof(line), in); at++) {
        line[strcspn(line, "#\n")] = '\0';
        const int words = sscanf(line, "%63s %63s", name, value);
        fine = words <= 0 || (words == 2 && model_rates_set(rates, name, value));
        if (!fine)
            snprintf(trouble, 256, "%.120s:%d: '%.60s': a name of a rate and a number expected",
                     path, at, line);
    }
    fclose(in);
    return fine;
}
