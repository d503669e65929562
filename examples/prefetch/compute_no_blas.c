/* A build without OpenBLAS cannot compute on the host, and reports that when it is asked to. */
#include <stdio.h>

#include "prefetch.h"

static bool refuse(struct compute *c, const struct shape *s, int device)
{
    (void)c;
    (void)s;
    (void)device;
    fprintf(stderr, "prefetch: built without OpenBLAS: it runs on GPUs only\n");
    return false;
}

const struct compute compute_host = {.name = "none", .element = sizeof(float), .open = refuse};
