/* Functions by which the linker replaces others (-Wl,--wrap: see CMakeLists.txt). */
#ifndef CECL_TESTS_WRAPPED_H
#define CECL_TESTS_WRAPPED_H

/* Begins a function that replaces `name`; the replaced one is called __real_name. */
#define WRAPPED(result, name, parameters) \
    result __real_##name parameters; \
    result __wrap_##name parameters; \
    result __wrap_##name parameters

#endif
