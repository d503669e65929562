/* Passes calls on without knowing what they are. Each symbol is a jump through its target, so that
 * arguments in registers and on the stack arrive as the caller left them, and no signature is written
 * down here that NCCL could change.
 *
 * For each name there is cecl_nccl_pass_NAME, which this library calls itself. NAME and pNAME are
 * the same place, or a function of collectives.c or follow.c.
 *
 * The stubs leave the symbol's address in a register that no calling convention uses for arguments,
 * where cecl_nccl_lazy finds it. That hands cecl_nccl_resolve the symbol, and the code that the call
 * returns to. */
#include "nccl/names.h"
#include "nccl/symbol.h"

#if defined(__x86_64__)

#define STUB_CODE(name)                                                                            \
    "    endbr64\n"                                                                                \
    "    lea cecl_nccl_at_" name "(%rip), %r11\n"                                                  \
    "    jmp *(%r11)\n"

/* Saved: the six integer registers, rax (the number of vector registers of a variadic call), r10 (a
 * closure's), and xmm0 to xmm7. No function of NCCL takes a wider vector. */
#define LAZY_CODE                                                                                  \
    "    endbr64\n"                                                                                \
    "    push %rbp\n"                                                                              \
    "    .cfi_def_cfa_offset 16\n"                                                                 \
    "    .cfi_offset %rbp, -16\n"                                                                  \
    "    mov %rsp, %rbp\n"                                                                         \
    "    .cfi_def_cfa_register %rbp\n"                                                             \
    "    sub $192, %rsp\n"                                                                         \
    "    movaps %xmm0, (%rsp)\n"                                                                   \
    "    movaps %xmm1, 16(%rsp)\n"                                                                 \
    "    movaps %xmm2, 32(%rsp)\n"                                                                 \
    "    movaps %xmm3, 48(%rsp)\n"                                                                 \
    "    movaps %xmm4, 64(%rsp)\n"                                                                 \
    "    movaps %xmm5, 80(%rsp)\n"                                                                 \
    "    movaps %xmm6, 96(%rsp)\n"                                                                 \
    "    movaps %xmm7, 112(%rsp)\n"                                                                \
    "    mov %rdi, 128(%rsp)\n"                                                                    \
    "    mov %rsi, 136(%rsp)\n"                                                                    \
    "    mov %rdx, 144(%rsp)\n"                                                                    \
    "    mov %rcx, 152(%rsp)\n"                                                                    \
    "    mov %r8, 160(%rsp)\n"                                                                     \
    "    mov %r9, 168(%rsp)\n"                                                                     \
    "    mov %rax, 176(%rsp)\n"                                                                    \
    "    mov %r10, 184(%rsp)\n"                                                                    \
    "    mov %r11, %rdi\n"                                                                         \
    "    mov 8(%rbp), %rsi\n"                                                                      \
    "    call cecl_nccl_resolve\n"                                                                 \
    "    mov %rax, %r11\n"                                                                         \
    "    movaps (%rsp), %xmm0\n"                                                                   \
    "    movaps 16(%rsp), %xmm1\n"                                                                 \
    "    movaps 32(%rsp), %xmm2\n"                                                                 \
    "    movaps 48(%rsp), %xmm3\n"                                                                 \
    "    movaps 64(%rsp), %xmm4\n"                                                                 \
    "    movaps 80(%rsp), %xmm5\n"                                                                 \
    "    movaps 96(%rsp), %xmm6\n"                                                                 \
    "    movaps 112(%rsp), %xmm7\n"                                                                \
    "    mov 128(%rsp), %rdi\n"                                                                    \
    "    mov 136(%rsp), %rsi\n"                                                                    \
    "    mov 144(%rsp), %rdx\n"                                                                    \
    "    mov 152(%rsp), %rcx\n"                                                                    \
    "    mov 160(%rsp), %r8\n"                                                                     \
    "    mov 168(%rsp), %r9\n"                                                                     \
    "    mov 176(%rsp), %rax\n"                                                                    \
    "    mov 184(%rsp), %r10\n"                                                                    \
    "    leave\n"                                                                                  \
    "    .cfi_def_cfa %rsp, 8\n"                                                                   \
    "    jmp *%r11\n"

#elif defined(__aarch64__)

/* hint 34 is bti c, which older assemblers do not know. */
#define STUB_CODE(name)                                                                            \
    "    hint #34\n"                                                                               \
    "    adrp x16, cecl_nccl_at_" name "\n"                                                        \
    "    add x16, x16, :lo12:cecl_nccl_at_" name "\n"                                              \
    "    ldr x17, [x16]\n"                                                                         \
    "    br x17\n"

/* Saved: x0 to x7, x8 (where a large result goes), and q0 to q7. */
#define LAZY_CODE                                                                                  \
    "    hint #34\n"                                                                               \
    "    stp x29, x30, [sp, #-224]!\n"                                                             \
    "    .cfi_def_cfa_offset 224\n"                                                                \
    "    .cfi_offset x29, -224\n"                                                                  \
    "    .cfi_offset x30, -216\n"                                                                  \
    "    mov x29, sp\n"                                                                            \
    "    stp x0, x1, [sp, #16]\n"                                                                  \
    "    stp x2, x3, [sp, #32]\n"                                                                  \
    "    stp x4, x5, [sp, #48]\n"                                                                  \
    "    stp x6, x7, [sp, #64]\n"                                                                  \
    "    str x8, [sp, #80]\n"                                                                      \
    "    stp q0, q1, [sp, #96]\n"                                                                  \
    "    stp q2, q3, [sp, #128]\n"                                                                 \
    "    stp q4, q5, [sp, #160]\n"                                                                 \
    "    stp q6, q7, [sp, #192]\n"                                                                 \
    "    mov x0, x16\n"                                                                            \
    "    mov x1, x30\n"                                                                            \
    "    bl cecl_nccl_resolve\n"                                                                   \
    "    mov x16, x0\n"                                                                            \
    "    ldp x0, x1, [sp, #16]\n"                                                                  \
    "    ldp x2, x3, [sp, #32]\n"                                                                  \
    "    ldp x4, x5, [sp, #48]\n"                                                                  \
    "    ldp x6, x7, [sp, #64]\n"                                                                  \
    "    ldr x8, [sp, #80]\n"                                                                      \
    "    ldp q0, q1, [sp, #96]\n"                                                                  \
    "    ldp q2, q3, [sp, #128]\n"                                                                 \
    "    ldp q4, q5, [sp, #160]\n"                                                                 \
    "    ldp q6, q7, [sp, #192]\n"                                                                 \
    "    ldp x29, x30, [sp], #224\n"                                                               \
    "    .cfi_restore x30\n"                                                                       \
    "    .cfi_restore x29\n"                                                                       \
    "    .cfi_def_cfa_offset 0\n"                                                                  \
    "    br x16\n"

#else
#error "calls are passed on by x86-64 and aarch64 assembler"
#endif

#define LABEL(name)                                                                                \
    ".globl " name "\n"                                                                            \
    ".type " name ", %function\n" name ":\n"

#define HIDDEN(name) ".hidden " name "\n" LABEL(name)

#define CODE(labels, last, code)                                                                   \
    __asm__(".pushsection .text\n"                                                                 \
            ".balign 16\n" labels "    .cfi_startproc\n" code "    .cfi_endproc\n"                 \
            ".size " last ", . - " last "\n"                                                       \
            ".popsection\n");

#define PASS(name) HIDDEN("cecl_nccl_pass_" #name)
#define COUNTED(name) CODE(PASS(name), "cecl_nccl_pass_" #name, STUB_CODE(#name))
#define FOLLOWED(name, answer) COUNTED(name)
#define JUMP(name, answer) CODE(PASS(name) LABEL(#name) LABEL("p" #name), #name, STUB_CODE(#name))

CODE(HIDDEN("cecl_nccl_lazy"), "cecl_nccl_lazy", LAZY_CODE)
CECL_NCCL_NAMES(COUNTED, FOLLOWED, JUMP)
