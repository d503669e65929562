/* test_nccl_pass LIBRARY: each function's arguments reach NCCL unchanged, in every register and on the stack, at the
 * first call and at later calls. CECL_NCCL_PATH names the library of echo.h. */
#include <dlfcn.h>
#include <pthread.h>

#include "../with_cmocka.h"

#include "echo.h"

#define THREADS 8
#define NONE (-1)

static const struct {
    const char *name;
    /* how many arguments of a C function are compared; 0: an assembly jump, which keeps all arguments */
    int words;
} symbols[] = {
#define COUNTED(name) {#name, 6},
#define FOLLOWED(name, answer) {#name, sizeof(#name) > 9 && #name[4] == 'G' ? NONE : 1},
#define JUMP(name, answer) {#name, 0},
#include "nccl/names.h"
};
#define SYMBOLS (sizeof(symbols) / sizeof(symbols[0]))

static void *ours;
static echo_last_function *echo_last;

static void *find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found)
        fail_msg("%s is not exported", name);
    return found;
}

static echo_function *function_of(size_t symbol)
{
    echo_function *function;
    *(void **)&function = find(ours, symbols[symbol].name);
    return function;
}

/* Whether the C function reads the unique ids at a pointer before it passes the call on. */
static bool reads_ids(size_t symbol)
{
    return strcmp(symbols[symbol].name, "ncclCommGrow") == 0 ||
           strcmp(symbols[symbol].name, "ncclCommInitRankScalable") == 0;
}

/* All words but the first fit into an int, because C functions declare some arguments as ints. The first is an address,
 * because ncclGetVersion writes there. */
static uint64_t word(size_t symbol, uint64_t place, const int *room)
{
    const uint64_t other = reads_ids(symbol) ? 0 : 1000 * (symbol + 1) + place;
    return place == 0 ? (uint64_t)(uintptr_t)room : other;
}

#define WORDS(from) \
    w(from), w(from + 1), w(from + 2), w(from + 3), w(from + 4), w(from + 5), w(from + 6), \
        w(from + 7)
#define w(place) word(symbol, place, &room)

static bool is_alike(const struct echo *echo, size_t symbol, const int *room)
{
    const int nwords = symbols[symbol].words ? symbols[symbol].words : ECHO_WORDS;
    bool alike = strcmp(echo->name, symbols[symbol].name) == 0;
    for (int i = 0; i < nwords; i++)
        alike = alike && echo->words[i] == word(symbol, (uint64_t)i, room);
    for (int i = 0; i < ECHO_NUMBERS && symbols[symbol].words == 0; i++)
        alike = alike && echo->numbers[i] == i + 0.5;
    return alike;
}

/* Whether one call arrives unchanged, and returns NCCL's result. */
static bool arrives(size_t symbol)
{
    int room = 0;
    const uint64_t returned =
        function_of(symbol)(WORDS(0), 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, WORDS(8), WORDS(16));
    return is_alike(echo_last(), symbol, &room) &&
           (symbols[symbol].words != 0 || returned == ECHO_RETURNS);
}

static pthread_barrier_t start;

/* All threads first call each function at the same time. Returns the name of one whose arguments were lost, or NULL. */
static void *call_all(void *unused)
{
    const char *lost = NULL;
    for (size_t symbol = 0; symbol < SYMBOLS; symbol++) {
        pthread_barrier_wait(&start);
        if (!arrives(symbol))
            lost = symbols[symbol].name;
    }
    return (void *)(uintptr_t)lost;
}

TEST(first_calls_from_many_threads_keep_their_arguments)
{
    pthread_t threads[THREADS];
    pthread_barrier_init(&start, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_all, NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        void *lost;
        assert_int_equal(pthread_join(threads[i], &lost), 0);
        if (lost)
            fail_msg("%s lost arguments", (const char *)lost);
    }
}

TEST(later_calls_keep_their_arguments)
{
    for (size_t symbol = 0; symbol < SYMBOLS; symbol++)
        if (!arrives(symbol))
            fail_msg("%s lost arguments", symbols[symbol].name);
}

/* Tools that replace NCCL's functions call the second name. */
TEST(each_symbol_has_a_second_name)
{
    for (size_t symbol = 0; symbol < SYMBOLS; symbol++) {
        char second[64];
        snprintf(second, sizeof(second), "p%s", symbols[symbol].name);
        assert_ptr_equal(find(ours, second), find(ours, symbols[symbol].name));
    }
}

struct by_value {
    char bytes[128]; /* an ncclUniqueId */
};
typedef int init_rank(void **comm, int nranks, struct by_value id, int rank);

/* x86-64 passes the struct on the stack, aarch64 by the address of a copy. */
TEST(a_struct_of_128_bytes_arrives_by_value)
{
    struct by_value id;
    void *comm;
    init_rank *function;
    for (size_t i = 0; i < sizeof(id); i++)
        id.bytes[i] = (char)(i + 1);
    *(void **)&function = find(ours, "ncclCommInitRank");
    function(&comm, 3, id, 2);
    const struct echo *echo = echo_last();
    assert_int_equal(echo->words[0], (uintptr_t)&comm);
    assert_int_equal((int)echo->words[1], 3);
#if defined(__x86_64__)
    assert_int_equal((int)echo->words[2], 2);
    assert_memory_equal(&echo->words[6], &id, sizeof(id));
#else
    assert_int_equal((int)echo->words[3], 2);
#endif
}

int main(int argc, char **argv)
{
    const char *real = getenv("CECL_NCCL_PATH");
    void *echo = argc == 2 && real ? dlopen(real, RTLD_NOW | RTLD_LOCAL) : NULL;
    setenv("CECL_NCCL_STATS", "0", 1); /* with statistics the library makes calls of its own */
    ours = echo ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!ours) {
        print_error("test_nccl_pass LIBRARY, and CECL_NCCL_PATH: %s\n", dlerror());
        return 2;
    }
    *(void **)&echo_last = dlsym(echo, "echo_last");
    return tests_run(NULL, NULL);
}
