/* Writes keep to the limit on file sizes, and leave the program's signals and errno alone. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../decimal_comma.h"
#include "../soft_limit.h"
#include "../with_cmocka.h"

#include "util/file.h"
#include "util/log.h"

#define LIMIT 65536

/* Without the library's own check SIGXFSZ would end the process. */
TEST(memory_grows_up_to_the_limit_on_files)
{
    const int fd = memfd_create("test", MFD_CLOEXEC);
    const rlim_t before = soft_limit(RLIMIT_FSIZE, LIMIT);
    const ceclResult_t fits = cecl_file_grow(fd, LIMIT), passes = cecl_file_grow(fd, LIMIT + 1);
    soft_limit(RLIMIT_FSIZE, before);
    assert_int_equal(fits, ceclSuccess);
    assert_int_equal(passes, ceclOutOfMemory);
    assert_string_equal(cecl_message(),
                        "shared memory of 65537 bytes: RLIMIT_FSIZE (ulimit -f) allows files of "
                        "65536");
    assert_int_equal(cecl_file_grow(fd, LIMIT + 1), ceclSuccess);
    close(fd);
}

/* Part of a line would be worse than none. */
TEST(a_write_past_the_limit_writes_nothing)
{
    char *bytes = calloc(1, LIMIT + 1);
    FILE *file = tmpfile();
    struct stat info;
    const rlim_t before = soft_limit(RLIMIT_FSIZE, LIMIT);
    const ceclResult_t result = cecl_file_write(fileno(file), bytes, LIMIT + 1);
    soft_limit(RLIMIT_FSIZE, before);
    assert_int_equal(result, ceclOutOfMemory);
    assert_non_null(strstr(cecl_message(), "RLIMIT_FSIZE (ulimit -f) allows files of 65536"));
    assert_int_equal(fstat(fileno(file), &info), 0);
    assert_int_equal(info.st_size, 0);
    fclose(file);
    free(bytes);
}

TEST(signals_of_a_write_do_not_reach_the_program)
{
    const rlim_t before = soft_limit(RLIMIT_FSIZE, 1);
    FILE *file = tmpfile();
    struct cecl_writing writing;
    cecl_writing_begin(&writing);
    assert_int_equal(pwrite(fileno(file), "xy", 2, 1), -1); /* SIGXFSZ */
    cecl_writing_end(&writing);
    assert_int_equal(errno, EFBIG);
    soft_limit(RLIMIT_FSIZE, before);
    fclose(file);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]);
    assert_int_equal(cecl_file_write(ends[1], "x", 1), ceclSystemError); /* SIGPIPE */
    assert_string_equal(cecl_message(), "0 of 1 bytes written: Broken pipe");
    close(ends[1]);
}

TEST(a_signal_that_was_pending_stays_pending)
{
    sigset_t set, before;
    struct cecl_writing writing;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    raise(SIGPIPE);
    cecl_writing_begin(&writing);
    cecl_writing_end(&writing);
    assert_int_equal(sigtimedwait(&set, NULL, &(struct timespec){0}), SIGPIPE);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void *read_late(void *end)
{
    char bytes[4096];
    size_t count = 0;
    ssize_t now;
    usleep(100000);
    while ((now = read(*(int *)end, bytes, sizeof(bytes))) > 0)
        count += (size_t)now;
    return (void *)count;
}

TEST(a_full_pipe_is_waited_for)
{
    const size_t count = 300000; /* more than a pipe holds */
    char *bytes = calloc(1, count);
    int ends[2];
    void *read_bytes;
    pthread_t reader;
    assert_int_equal(pipe2(ends, O_NONBLOCK), 0);
    assert_int_equal(fcntl(ends[0], F_SETFL, 0), 0);
    assert_int_equal(pthread_create(&reader, NULL, read_late, &ends[0]), 0);
    assert_int_equal(cecl_file_write(ends[1], bytes, count), ceclSuccess);
    close(ends[1]);
    pthread_join(reader, &read_bytes);
    assert_int_equal((size_t)read_bytes, count);
    close(ends[0]);
    free(bytes);
}

/* The program's own output keeps the locale's comma. */
TEST(numbers_have_a_point_where_the_locale_has_a_comma)
{
    struct cecl_writing writing;
    char text[64] = "", line[64] = "";
    FILE *file = tmpfile();
    const int standard = dup(STDERR_FILENO);
    if (!take_decimal_comma())
        skip_because("no locale here has a decimal comma");
    cecl_writing_begin(&writing);
    snprintf(text, sizeof(text), "%.1f", 1.5);
    cecl_writing_end(&writing);
    dup2(fileno(file), STDERR_FILENO);
    cecl_log(CECL_LOG_WARN, -1, "step %.1f ms", 2.5);
    dup2(standard, STDERR_FILENO);
    close(standard);
    rewind(file);
    assert_non_null(fgets(line, sizeof(line), file));
    fclose(file);
    assert_string_equal(text, "1.5");
    assert_string_equal(line, "cecl: step 2.5 ms\n");
    snprintf(text, sizeof(text), "%.1f", 1.5);
    setlocale(LC_ALL, "C");
    assert_string_equal(text, "1,5");
}
