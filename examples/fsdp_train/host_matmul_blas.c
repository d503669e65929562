/* Matrix products by OpenBLAS, on one thread. Ranks share the cores, and one thread always adds in
 * the same order, so results repeat bit for bit. */
#include <cblas.h>

#include "host_matmul.h"

const char host_matmul_name[] = "CPU (OpenBLAS, float)";

void host_matmul(struct compute *c, const struct matmul *m)
{
    const CBLAS_TRANSPOSE ta = m->a_turned ? CblasTrans : CblasNoTrans;
    const CBLAS_TRANSPOSE tb = m->b_turned ? CblasTrans : CblasNoTrans;
    (void)c;
    openblas_set_num_threads(1);
    for (int i = 0; i < m->batch; i++)
        cblas_sgemm(CblasRowMajor, ta, tb, m->m, m->n, m->k, m->alpha,
                    (const real *)m->a + i * m->stride_a, m->lda,
                    (const real *)m->b + i * m->stride_b, m->ldb, m->beta,
                    (real *)m->c + i * m->stride_c, m->ldc);
}
