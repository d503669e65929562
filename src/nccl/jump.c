/* Passes calls on without knowing their signatures, which NCCL may change. Each function is only a jump to
 * the symbol's target, so arguments in registers and on the stack stay as the caller set them.
 *
 * For each name there is cecl_nccl_pass_NAME, which this library itself calls. NAME and pNAME have
 * its address, unless they are functions of collectives.c or follow.c.
 *
 * The stubs put the symbol's address into a register that no calling convention uses for arguments.
 * cecl_nccl_lazy finds it there, and hands the symbol and the call's return address to
 * cecl_nccl_resolve. */
#include "nccl/names.h"
#include "nccl/symbol.h"

#if defined(__x86_64__)

#define STUB_CODE(name)                                                                            \
    "    endbr64\n"                                                                                \
    "    lea cecl_nccl_at_" name "(%rip), %r11\n"                                                  \
    "    jmp *(%r11)\n"

/* Registers that may hold arguments, each with its place on the stack: the six integer registers,
 * rax (the number of vector registers of a variadic call), r10 (for closures), and xmm0 to xmm7. No
 * function of NCCL takes wider vectors. */
#define ARGUMENTS(VECTOR, INTEGER)                                                                 \
    VECTOR("xmm0", "0")                                                                            \
    VECTOR("xmm1", "16")                                                                           \
    VECTOR("xmm2", "32")                                                                           \
    VECTOR("xmm3", "48")                                                                           \
    VECTOR("xmm4", "64")                                                                           \
    VECTOR("xmm5", "80")                                                                           \
    VECTOR("xmm6", "96")                                                                           \
    VECTOR("xmm7", "112")                                                                          \
    INTEGER("rdi", "128")                                                                          \
    INTEGER("rsi", "136")                                                                          \
    INTEGER("rdx", "144")                                                                          \
    INTEGER("rcx", "152")                                                                          \
    INTEGER("r8", "160")                                                                           \
    INTEGER("r9", "168")                                                                           \
    INTEGER("rax", "176")                                                                          \
    INTEGER("r10", "184")
#define SAVE_VECTOR(name, at) "    movaps %" name ", " at "(%rsp)\n"
#define SAVE(name, at) "    mov %" name ", " at "(%rsp)\n"
#define RESTORE_VECTOR(name, at) "    movaps " at "(%rsp), %" name "\n"
#define RESTORE(name, at) "    mov " at "(%rsp), %" name "\n"

#define LAZY_CODE                                                                                  \
    "    endbr64\n"                                                                                \
    "    push %rbp\n"                                                                              \
    "    .cfi_def_cfa_offset 16\n"                                                                 \
    "    .cfi_offset %rbp, -16\n"                                                                  \
    "    mov %rsp, %rbp\n"                                                                         \
    "    .cfi_def_cfa_register %rbp\n"                                                             \
    "    sub $192, %rsp\n" ARGUMENTS(SAVE_VECTOR, SAVE) "    mov %r11, %rdi\n"                     \
                                                        "    mov 8(%rbp), %rsi\n"                  \
                                                        "    call cecl_nccl_resolve\n"             \
                                                        "    mov %rax, %r11\n" ARGUMENTS(          \
                                                            RESTORE_VECTOR,                        \
                                                            RESTORE) "    leave\n"                 \
                                                                     "    .cfi_def_cfa %rsp, 8\n"  \
                                                                     "    jmp *%r11\n"

#elif defined(__aarch64__)

/* hint 34 is bti c, which older assemblers do not know. ldar: if another thread has opened NCCL, a
 * thread that sees the target must also see what the other one has written. */
#define STUB_CODE(name)                                                                            \
    "    hint #34\n"                                                                               \
    "    adrp x16, cecl_nccl_at_" name "\n"                                                        \
    "    add x16, x16, :lo12:cecl_nccl_at_" name "\n"                                              \
    "    ldar x17, [x16]\n"                                                                        \
    "    br x17\n"

/* Registers that may hold arguments: x0 to x7, x8 (the address of a large result; x9 only fills the pair),
 * and q0 to q7. */
#define ARGUMENTS(PAIR)                                                                            \
    PAIR("x0, x1", "16")                                                                           \
    PAIR("x2, x3", "32")                                                                           \
    PAIR("x4, x5", "48")                                                                           \
    PAIR("x6, x7", "64")                                                                           \
    PAIR("x8, x9", "80")                                                                           \
    PAIR("q0, q1", "96")                                                                           \
    PAIR("q2, q3", "128")                                                                          \
    PAIR("q4, q5", "160")                                                                          \
    PAIR("q6, q7", "192")
#define SAVE(pair, at) "    stp " pair ", [sp, #" at "]\n"
#define RESTORE(pair, at) "    ldp " pair ", [sp, #" at "]\n"

#define LAZY_CODE                                                                                  \
    "    hint #34\n"                                                                               \
    "    stp x29, x30, [sp, #-224]!\n"                                                             \
    "    .cfi_def_cfa_offset 224\n"                                                                \
    "    .cfi_offset x29, -224\n"                                                                  \
    "    .cfi_offset x30, -216\n"                                                                  \
    "    mov x29, sp\n" ARGUMENTS(SAVE) "    mov x0, x16\n"                                        \
                                        "    mov x1, x30\n"                                        \
                                        "    bl cecl_nccl_resolve\n"                               \
                                        "    mov x16, x0\n" ARGUMENTS(                             \
                                            RESTORE) "    ldp x29, x30, [sp], #224\n"              \
                                                     "    .cfi_restore x30\n"                      \
                                                     "    .cfi_restore x29\n"                      \
                                                     "    .cfi_def_cfa_offset 0\n"                 \
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
