/* Passes calls to NCCL without knowing their signatures, which NCCL may change. Each function only jumps to its
 * symbol's target (symbol.h), so arguments in registers and on the stack stay as the caller set them.
 *
 * Each NAME of names.h has a function cecl_nccl_pass_NAME, which this library itself calls. NAME and pNAME are other
 * names of this function, unless collectives.c or follow.c has them.
 *
 * Each function puts its symbol's address into a register that no calling convention uses for arguments.
 * cecl_nccl_lazy, the first target, passes this address and the call's return address to cecl_nccl_resolve. */
#include "nccl/symbol.h"

#define LABEL(name) \
    ".globl " name "\n" \
    ".type " name ", %function\n" name ":\n"

#define HIDDEN(name) ".hidden " name "\n" LABEL(name)

#define CODE(labels, last, code) \
    __asm__(".pushsection .text\n" \
            ".balign 16\n" labels "    .cfi_startproc\n" code "    .cfi_endproc\n" \
            ".size " last ", . - " last "\n" \
            ".popsection\n");

#if defined(__x86_64__)

#define STUB_CODE(name) \
    "    endbr64\n" \
    "    lea cecl_nccl_at_" name "(%rip), %r11\n" \
    "    jmp *(%r11)\n"

/* Saves the registers that may hold arguments: the six integer registers, rax (the number of vector registers of a
 * variadic call), r10 (for closures), and xmm0 to xmm7. No function of NCCL takes wider vectors. */
CODE(HIDDEN("cecl_nccl_lazy"), "cecl_nccl_lazy",
     "    endbr64\n"
     "    push %rbp\n"
     "    .cfi_def_cfa_offset 16\n"
     "    .cfi_offset %rbp, -16\n"
     "    mov %rsp, %rbp\n"
     "    .cfi_def_cfa_register %rbp\n"
     "    .irp name, rdi, rsi, rdx, rcx, r8, r9, rax, r10\n"
     "    push %\\name\n"
     "    .endr\n"
     "    sub $128, %rsp\n"
     "    .irp number, 0, 1, 2, 3, 4, 5, 6, 7\n"
     "    movaps %xmm\\number, 16*\\number(%rsp)\n"
     "    .endr\n"
     "    mov %r11, %rdi\n"
     "    mov 8(%rbp), %rsi\n"
     "    call cecl_nccl_resolve\n"
     "    mov %rax, %r11\n"
     "    .irp number, 0, 1, 2, 3, 4, 5, 6, 7\n"
     "    movaps 16*\\number(%rsp), %xmm\\number\n"
     "    .endr\n"
     "    add $128, %rsp\n"
     "    .irp name, r10, rax, r9, r8, rcx, rdx, rsi, rdi\n"
     "    pop %\\name\n"
     "    .endr\n"
     "    pop %rbp\n"
     "    .cfi_def_cfa %rsp, 8\n"
     "    jmp *%r11\n")

#elif defined(__aarch64__)

/* hint 34 is bti c, which older assemblers do not know. ldar (load-acquire): another thread may have opened NCCL and
 * then stored the target; this thread must see all that was written before. */
#define STUB_CODE(name) \
    "    hint #34\n" \
    "    adrp x16, cecl_nccl_at_" name "\n" \
    "    add x16, x16, :lo12:cecl_nccl_at_" name "\n" \
    "    ldar x17, [x16]\n" \
    "    br x17\n"

/* Saves the registers that may hold arguments: x0 to x7, x8 (the address of a large result), and q0 to q7. */
CODE(HIDDEN("cecl_nccl_lazy"), "cecl_nccl_lazy",
     "    hint #34\n"
     "    stp x29, x30, [sp, #-224]!\n"
     "    .cfi_def_cfa_offset 224\n"
     "    .cfi_offset x29, -224\n"
     "    .cfi_offset x30, -216\n"
     "    mov x29, sp\n"
     "    .irp number, 0, 1, 2, 3, 4, 5, 6, 7\n"
     "    str x\\number, [sp, #16+8*\\number]\n"
     "    str q\\number, [sp, #96+16*\\number]\n"
     "    .endr\n"
     "    str x8, [sp, #80]\n"
     "    mov x0, x16\n"
     "    mov x1, x30\n"
     "    bl cecl_nccl_resolve\n"
     "    mov x16, x0\n"
     "    .irp number, 0, 1, 2, 3, 4, 5, 6, 7\n"
     "    ldr x\\number, [sp, #16+8*\\number]\n"
     "    ldr q\\number, [sp, #96+16*\\number]\n"
     "    .endr\n"
     "    ldr x8, [sp, #80]\n"
     "    ldp x29, x30, [sp], #224\n"
     "    .cfi_restore x30\n"
     "    .cfi_restore x29\n"
     "    .cfi_def_cfa_offset 0\n"
     "    br x16\n")

#else
#error "calls are passed on by x86-64 and aarch64 assembler"
#endif

#define PASS(name) HIDDEN("cecl_nccl_pass_" #name)
#define COUNTED(name) CODE(PASS(name), "cecl_nccl_pass_" #name, STUB_CODE(#name))
#define FOLLOWED(name, answer) COUNTED(name)
#define JUMP(name, answer) CODE(PASS(name) LABEL(#name) LABEL("p" #name), #name, STUB_CODE(#name))
#include "nccl/names.h"
