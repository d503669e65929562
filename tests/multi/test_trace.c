/* CECL_TRACE: each rank writes a JSON file with one event for each call. Without CECL_TRACE there
 * is no file. If a file cannot be written, there is a warning, and calls work. With CECL_NVTX,
 * calls work. */
#include "multi.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define BLOCK 512

static char folder[64], file[128]; /* folder of this run; file of this rank */
static ceclComm_t comm;
static char *send_buffer, *recv_buffer; /* [nranks * BLOCK] */

static void open_comm(const char *trace)
{
    const size_t bytes = (size_t)multi_nranks * BLOCK;
    multi_setenv("CECL_TRACE", trace);
    comm = multi_comm(NULL);
    multi_setenv("CECL_TRACE", NULL);
    multi_ok(comm, ceclMemAlloc(comm, (void **)&recv_buffer, bytes));
    multi_ok(comm, ceclMemAlloc(comm, (void **)&send_buffer, bytes));
}

/* Destroys the communicator. Then all ranks have written their files. */
static void close_comm(void)
{
    multi_ok(NULL, ceclCommDestroy(comm));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void gather(size_t count)
{
    multi_ok(comm, ceclAllGather(send_buffer, recv_buffer, count, ceclInt8, comm, 0));
}

static int set_up(void **state)
{
    snprintf(folder, sizeof(folder), "/tmp/cecl_trace_XXXXXX");
    if (multi_rank == 0 && !mkdtemp(folder))
        return -1;
    MPI_Bcast(folder, sizeof(folder), MPI_CHAR, 0, MPI_COMM_WORLD);
    snprintf(file, sizeof(file), "%s/%d.json", folder, multi_rank);
    return 0;
}

static int tear_down(void **state)
{
    unlink(file);
    MPI_Barrier(MPI_COMM_WORLD);
    return multi_rank == 0 ? rmdir(folder) : 0; /* the folder has no other files */
}

static char *text_of(const char *name)
{
    FILE *in = fopen(name, "r");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    const long bytes = ftell(in);
    char *text = malloc((size_t)bytes + 1);
    assert_non_null(text);
    rewind(in);
    assert_int_equal(fread(text, 1, (size_t)bytes, in), bytes);
    text[bytes] = '\0';
    fclose(in);
    return text;
}

/* Searches line by line: under a sanitizer, each strstr first looks for the end of its text. */
static int count_of(const char *text, const char *words)
{
    char line[1024];
    int count = 0;
    while (*text) {
        const size_t bytes = strcspn(text, "\n");
        assert_true(bytes < sizeof(line));
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        for (const char *p = line; (p = strstr(p, words)); p += strlen(words))
            count++;
        text += bytes + (text[bytes] == '\n');
    }
    return count;
}

/* ---- Is it JSON? Each function returns the end of its value, or NULL. */

static const char *past_space(const char *p)
{
    while (p && isspace((unsigned char)*p))
        p++;
    return p;
}

static const char *past_string(const char *p)
{
    if (*p++ != '"')
        return NULL;
    for (; *p && *p != '"'; p++)
        if ((unsigned char)*p < ' ' || (*p == '\\' && !*++p))
            return NULL;
    return *p ? p + 1 : NULL;
}

static const char *past_value(const char *p);

static const char *past_members(const char *p, char closing)
{
    for (p = past_space(p + 1); p && *p != closing;) {
        if (closing == '}') {
            p = past_space(past_string(p));
            if (!p || *p++ != ':')
                return NULL;
        }
        p = past_space(past_value(p));
        if (p && *p == ',')
            p = past_space(p + 1);
        else if (p && *p != closing)
            return NULL;
        else
            break;
        if (*p == closing) /* after a comma */
            return NULL;
    }
    return p ? p + 1 : NULL;
}

static const char *past_value(const char *p)
{
    char *end;
    p = past_space(p);
    if (*p == '{' || *p == '[')
        return past_members(p, *p == '{' ? '}' : ']');
    if (*p == '"')
        return past_string(p);
    strtod(p, &end);
    return end > p ? end : NULL;
}

static void assert_json(const char *text)
{
    const char *end = past_space(past_value(text));
    assert_non_null(end);
    assert_int_equal(*end, '\0');
}

/* view_trace.sh then reads the file like a viewer. */
static void keep_for_the_viewer(void)
{
    const char *where = getenv("CECL_TEST_KEEP_TRACES");
    char kept[128];
    if (!where)
        return;
    snprintf(kept, sizeof(kept), "%s/%d.json", where, multi_rank);
    assert_int_equal(link(file, kept), 0);
}

/* ---- tests */

static void every_call_has_one_event_of_its_name(void **state)
{
    char pattern[128], rank[32];
    size_t counts[64], places[64], peer_places[64];
    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    open_comm(pattern);
    for (size_t r = 0; r < (size_t)multi_nranks; r++) {
        counts[r] = 4;
        places[r] = 4 * r;
        peer_places[r] = 4 * (size_t)multi_rank;
    }
    gather(BLOCK);
    gather(0);
    multi_ok(comm, ceclAlltoAll(send_buffer, recv_buffer, 8, ceclInt8, comm, 0));
    multi_ok(comm, ceclReduceScatter(send_buffer, recv_buffer, 8, ceclInt8, ceclSum, comm, 0));
    multi_ok(comm, ceclAlltoAllv(send_buffer, counts, places, recv_buffer, counts, places, ceclInt8,
                                 comm, 0));
    multi_refused(comm, ceclBroadcast(NULL, NULL, 8, ceclInt8, 0, comm, 0), ceclInvalidArgument,
                  "NULL");
    multi_ok(comm, ceclGroupStart());
    gather(16);
    multi_ok(comm, ceclAlltoAllvAt(send_buffer, counts, places, recv_buffer + 256, counts, places,
                                   peer_places, ceclInt8, comm, 0));
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    close_comm();

    char *text = text_of(file);
    assert_json(text);
    snprintf(rank, sizeof(rank), "\"pid\": %d", multi_rank);
    assert_int_equal(count_of(text, "\"ph\": \"X\""), 12);
    assert_int_equal(count_of(text, rank), 12 + 1); /* plus the events that name the rank */
    assert_int_equal(count_of(text, "\"ceclMemAlloc\""), 2);
    assert_true(count_of(text, "inside the pool") > 0); /* the second gather is small */
    assert_int_equal(count_of(text, "\"ceclAllGather\""), 3);
    assert_int_equal(count_of(text, "\"ceclAlltoAll\""), 1);
    assert_int_equal(count_of(text, "\"ceclReduceScatter\""), 1);
    assert_int_equal(count_of(text, "\"ceclAlltoAllv\""), 1);
    assert_int_equal(count_of(text, "\"ceclAlltoAllv: places\""), 1);
    assert_int_equal(count_of(text, "\"ceclAlltoAllvAt\""), 1);
    assert_int_equal(count_of(text, "\"ceclBroadcast\""), 1);
    assert_int_equal(count_of(text, "\"ceclGroupEnd\""), 1);
    assert_int_equal(count_of(text, "\"path\": \"nothing to do\""), 1);
    assert_int_equal(count_of(text, "\"path\": \"kept for the group's end\""), 2);
    assert_int_equal(count_of(text, "\"path\": \"group of 2 calls"), 1);
    assert_int_equal(count_of(text, "\"result\": \"invalid argument\""), 1);
    assert_int_equal(count_of(text, "\"bytes\": 512,"), 1); /* the first gather's event */
    free(text);
    keep_for_the_viewer();
}

/* Each call of a group counts the bytes of its own blocks, with or without a layout. */
static void a_groups_bytes_are_those_of_its_calls(void **state)
{
    char pattern[128], words[64];
    size_t counts[64];
    const size_t n = (size_t)multi_nranks;
    for (size_t r = 0; r < n; r++)
        counts[r] = 3;
    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    open_comm(pattern);
    for (int round = 0; round < 3; round++) {
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm,
                 ceclAllGatherv(send_buffer, 3, recv_buffer, counts, NULL, ceclInt8, comm, 0));
        multi_ok(comm, ceclAllGather(send_buffer + 64, recv_buffer + 64 * n, 8, ceclInt8, comm, 0));
        multi_ok(comm, ceclGroupEnd());
    }
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    close_comm();
    char *text = text_of(file);
    snprintf(words, sizeof(words), "\"bytes\": 11, \"recv_bytes\": %zu", n * 11);
    if (count_of(text, words) != 3)
        fail_msg("%s expected 3 times: %s", words, text);
    free(text);
}

/* A call that is refused before its blocks are known counts no bytes. */
static void refused_calls_of_blocks_that_differ_are_traced(void **state)
{
    char pattern[128];
    size_t counts[64] = {0};
    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    open_comm(pattern);
    multi_refused(comm,
                  ceclAlltoAllvAt(send_buffer, counts, NULL, recv_buffer, counts, NULL, counts,
                                  (ceclDataType_t)99, comm, 0),
                  ceclInvalidArgument, "datatype 99");
    multi_refused(comm,
                  ceclAlltoAllv(send_buffer, counts, NULL, recv_buffer, counts, NULL,
                                (ceclDataType_t)99, comm, 0),
                  ceclInvalidArgument, "datatype 99");
    close_comm();
    char *text = text_of(file);
    /* one more for the places */
    assert_int_equal(count_of(text, "\"result\": \"invalid argument\""), 3);
    free(text);
}

static void more_calls_than_the_buffer_holds_are_all_there(void **state)
{
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    open_comm(pattern);
    for (int i = 0; i < 9000; i++) /* 8192 fit */
        gather(0);
    close_comm();
    char *text = text_of(file);
    assert_json(text);
    assert_int_equal(count_of(text, "\"ceclAllGather\""), 9000);
    free(text);
}

/* The next communicator of the process adds to the same file. */
static void communicators_share_a_file_that_is_whole_between_them(void **state)
{
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/shared.json", folder);
    snprintf(file, sizeof(file), "%s/shared.json.%d", folder, multi_rank);
    for (int i = 1; i <= 3; i++) {
        open_comm(pattern);
        gather(1);
        close_comm();
        char *text = text_of(file);
        assert_json(text);
        assert_int_equal(count_of(text, "\"ceclAllGather\""), i);
        free(text);
    }
}

/* The child's ranks have other numbers. With these they would write to each other's files. */
static void a_split_off_communicator_writes_to_its_parents_file(void **state)
{
    char name[160];
    snprintf(name, sizeof(name), "%s/%%r.json", folder);
    open_comm(name);
    gather(BLOCK);
    ceclComm_t child = NULL;
    multi_setenv("CECL_TRACE", name);
    multi_ok(comm, ceclCommSplit(comm, 0, -multi_rank, &child, NULL));
    multi_setenv("CECL_TRACE", NULL);
    char *in = NULL, *out = NULL;
    multi_ok(child, ceclMemAlloc(child, (void **)&out, (size_t)multi_nranks * BLOCK));
    multi_ok(child, ceclMemAlloc(child, (void **)&in, (size_t)multi_nranks * BLOCK));
    multi_ok(child, ceclAlltoAll(in, out, BLOCK, ceclInt8, child, 0));
    /* no effect, but another number of events on each rank */
    for (int i = 0; i < multi_rank; i++) {
        void *none = NULL;
        multi_ok(child, ceclMemAlloc(child, &none, 0));
    }
    multi_ok(NULL, ceclCommDestroy(child));
    close_comm();
    char *text = text_of(file);
    assert_json(text);
    assert_int_equal(count_of(text, "\"ceclAllGather\""), 1);
    assert_int_equal(count_of(text, "\"ceclAlltoAll\""), 1);
    assert_int_equal(count_of(text, "\"ceclMemAlloc\""), 4 + multi_rank);
    free(text);
}

static void without_the_setting_there_is_no_file(void **state)
{
    open_comm(NULL);
    gather(BLOCK);
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    close_comm();
    assert_int_equal(access(file, F_OK), -1);
    /* tear_down finds the folder empty */
}

static void a_file_that_cannot_be_written_is_a_warning_and_calls_work(void **state)
{
    char pattern[128], words[160];
    snprintf(pattern, sizeof(pattern), "%s/none/%%r.json", folder);
    const int saved = dup(2), mine = open(file, O_RDWR | O_CREAT | O_TRUNC, 0600);
    dup2(mine, 2);
    open_comm(pattern);
    dup2(saved, 2);
    close(mine);
    close(saved);
    char *text = text_of(file);
    snprintf(words, sizeof(words), "CECL_TRACE: %s/none/%d.json cannot be written: No such file",
             folder, multi_rank);
    assert_int_equal(count_of(text, words), 1);
    free(text);
    const struct multi_case c = {.op = ceclOpAllGather, .count = 100, .type = ceclInt32};
    multi_check(comm, &c, 7);
    close_comm();
}

/* Each rank receives from the rank before it and sends to the next. A group posts its receive
 * first, and a sender waits up to 1 s for its receiver. So each sender finds the receive
 * posted. */
static void ranks_that_exchange_much_push_what_they_send(void **state)
{
    char pattern[128];
    snprintf(pattern, sizeof(pattern), "%s/%%r.json", folder);
    multi_tuning("late.wait_ns * any 1000000000\npair.wait_min_bytes * any 512");
    open_comm(pattern);
    multi_tuning(NULL);
    const int next = (multi_rank + 1) % multi_nranks,
              before = (multi_rank + multi_nranks - 1) % multi_nranks;
    for (int i = 0; i < 10; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (multi_rank == i % multi_nranks)
            multi_pause_ms(5);
        multi_ok(comm, ceclGroupStart());
        multi_ok(comm, ceclSend(send_buffer, BLOCK, ceclInt8, next, comm, 0));
        multi_ok(comm, ceclRecv(recv_buffer, BLOCK, ceclInt8, before, comm, 0));
        multi_ok(comm, ceclGroupEnd());
    }
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    close_comm();
    char *text = text_of(file);
    assert_int_equal(count_of(text, "point to point, 1 pushed, 0 pulled, 1 by peers"), 10);
    free(text);
}

static void calls_in_nvtx_ranges_work(void **state)
{
    multi_setenv("CECL_NVTX", "1");
    open_comm(NULL);
    multi_setenv("CECL_NVTX", NULL);
    const struct multi_case c = {.op = ceclOpAlltoAll, .count = 100, .type = ceclInt32};
    multi_check(comm, &c, 8);
    multi_ok(comm, ceclGroupStart());
    gather(4);
    multi_ok(comm, ceclGroupEnd());
    multi_ok(comm, ceclStreamSynchronize(comm, 0));
    close_comm();
}

#define TRACE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TRACE(every_call_has_one_event_of_its_name),
        TRACE(a_groups_bytes_are_those_of_its_calls),
        TRACE(refused_calls_of_blocks_that_differ_are_traced),
        TRACE(more_calls_than_the_buffer_holds_are_all_there),
        TRACE(communicators_share_a_file_that_is_whole_between_them),
        TRACE(a_split_off_communicator_writes_to_its_parents_file),
        TRACE(without_the_setting_there_is_no_file),
        TRACE(a_file_that_cannot_be_written_is_a_warning_and_calls_work),
        TRACE(ranks_that_exchange_much_push_what_they_send),
        TRACE(calls_in_nvtx_ranges_work),
    };
    return multi_main(argc, argv, tests, sizeof(tests) / sizeof(tests[0]));
}
