/* Constants of the network that both devices use. */
#ifndef CECL_FSDP_CONSTANTS_H
#define CECL_FSDP_CONSTANTS_H

#define NORM_EPSILON 1e-5
#define GELU_A 0.7978845608028654 /* sqrt(2 / pi) */
#define GELU_B 0.044715

#endif
