/* Matrix products by plain loops, for builds without OpenBLAS and as its reference in tests. */
#include "host_matmul.h"

const char host_matmul_name[] = "CPU (plain loops; OpenBLAS would be faster)";

/* Computes row i of C. The inner loop runs along rows of B where it can. */
static void product_row(const struct matmul *m, const real *a, const real *b, real *c, int i)
{
    const real alpha = (real)m->alpha, beta = (real)m->beta;
    real *row = c + (long long)i * m->ldc;
    for (int j = 0; j < m->n; j++) /* with beta = 0, C must not be read: it may hold anything */
        row[j] = m->beta != 0 ? beta * row[j] : 0;
    for (int p = 0; p < m->k && !m->b_turned; p++) {
        const real x =
            alpha * (m->a_turned ? a[(long long)p * m->lda + i] : a[(long long)i * m->lda + p]);
        const real *y = b + (long long)p * m->ldb;
        for (int j = 0; j < m->n; j++)
            row[j] += x * y[j];
    }
    for (int j = 0; j < m->n && m->b_turned; j++) {
        const real *y = b + (long long)j * m->ldb;
        real sum = 0;
        for (int p = 0; p < m->k; p++)
            sum +=
                (m->a_turned ? a[(long long)p * m->lda + i] : a[(long long)i * m->lda + p]) * y[p];
        row[j] += alpha * sum;
    }
}

void host_matmul(struct compute *c, const struct matmul *m)
{
    (void)c;
    for (int b = 0; b < m->batch; b++)
        for (int i = 0; i < m->m; i++)
            product_row(m, (const real *)m->a + b * m->stride_a,
                        (const real *)m->b + b * m->stride_b, (real *)m->c + b * m->stride_c, i);
}
