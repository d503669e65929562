/* The arithmetic of the layer, in plain loops. On GPUs these are kernels on the stream of cecl's calls. */
#include "moe.h"

#include <math.h>

/* Chooses for each token the experts with the highest scores. Gates are the softmax of these scores. */
void route(const float *router, int experts, const struct tokens *tokens, struct routes *routes)
{
    for (int t = 0; t < TOKENS; t++) {
        float score[MOST_EXPERTS] = {0};
        int best = 0, second = -1;
        for (int i = 0; i < WIDTH; i++)
            for (int e = 0; e < experts; e++)
                score[e] += tokens->x[t][i] * router[i * experts + e];
        for (int e = 1; e < experts; e++)
            best = score[e] > score[best] ? e : best;
        for (int e = 0; e < experts; e++)
            if (e != best && (second < 0 || score[e] > score[second]))
                second = e;
        const int low = best < second ? best : second, high = best < second ? second : best;
        const float gate = 1 / (1 + expf(score[high] - score[low]));
        routes->expert[t][0] = (uint32_t)low;
        routes->expert[t][1] = (uint32_t)high;
        routes->gate[t][0] = gate;
        routes->gate[t][1] = 1 - gate;
    }
}

void expert_forward(const float *weights, const float *x, size_t rows, float *out)
{
    for (size_t r = 0; r < rows; r++)
        for (int j = 0; j < WIDTH; j++) {
            float sum = 0;
            for (int i = 0; i < WIDTH; i++)
                sum += x[r * WIDTH + (size_t)i] * weights[i * WIDTH + j];
            out[r * WIDTH + (size_t)j] = sum;
        }
}

void expert_backward(float *d_weights, const float *x, const float *d_out, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        for (int i = 0; i < WIDTH; i++)
            for (int j = 0; j < WIDTH; j++)
                d_weights[i * WIDTH + j] += x[r * WIDTH + (size_t)i] * d_out[r * WIDTH + (size_t)j];
}

float dot(const float *a, const float *b)
{
    float sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += a[i] * b[i];
    return sum;
}

float loss_of(const struct tokens *tokens, const float *outputs, int all_tokens, float *d_outputs)
{
    const float numbers = (float)(all_tokens * WIDTH);
    float loss = 0;
    for (int i = 0; i < TOKENS * WIDTH; i++) {
        const float error = outputs[i] - tokens->wanted[i / WIDTH][i % WIDTH];
        loss += error * error / numbers;
        d_outputs[i] = 2 * error / numbers;
    }
    return loss;
}

void route_backward(float *d_router, int experts, const struct tokens *tokens,
                    const struct routes *routes, const float *d_gates)
{
    for (int t = 0; t < TOKENS; t++) {
        const float *gate = routes->gate[t];
        const float d_score = gate[0] * gate[1] * (d_gates[t * CHOICES] - d_gates[t * CHOICES + 1]);
        for (int i = 0; i < WIDTH; i++) {
            float *row = &d_router[i * experts];
            row[routes->expert[t][0]] += tokens->x[t][i] * d_score;
            row[routes->expert[t][1]] -= tokens->x[t][i] * d_score;
        }
    }
}
