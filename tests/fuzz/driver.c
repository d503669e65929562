/* Replaces libFuzzer in ordinary builds: runs the fuzzer once with each file of a folder, and then with COUNT random
 * inputs, the same each time.
 *
 *    fuzz_NAME FOLDER [COUNT] */
#include <dirent.h>
#include <unistd.h>

#include "../share.h"
#include "input.h"

#define MOST ((size_t)1 << 16) /* most bytes of a file */
#define RANDOM_BYTES 300

static int run_file(const char *folder, const char *name)
{
    static uint8_t data[MOST];
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    const size_t bytes = fread(data, 1, sizeof(data), file);
    fclose(file);
    /* flushed: the last line names the file that ended the run */
    fprintf(stderr, "%s\n", name);
    LLVMFuzzerTestOneInput(data, bytes);
    return 0;
}

static int run_folder(const char *path)
{
    DIR *folder = opendir(path);
    int files = 0;
    if (!folder)
        return 0;
    for (const struct dirent *one = readdir(folder); one; one = readdir(folder))
        files += one->d_name[0] != '.' && run_file(path, one->d_name) == 0;
    closedir(folder);
    return files;
}

static void run_random(int number)
{
    static uint8_t data[RANDOM_BYTES];
    uint64_t word = (uint64_t)number;
    for (int i = 0; i < RANDOM_BYTES; i++) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407;
        data[i] = (uint8_t)(word >> 56);
    }
    fprintf(stderr, "random input %d\n", number);
    LLVMFuzzerTestOneInput(data, sizeof(data));
}

int main(int argc, char **argv)
{
    int files = 0;
    const int count = argc > 2 ? test_share(atoi(argv[2])) : 0;
    alarm(280);
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 1)
        files = run_folder(argv[1]);
    for (int i = 0; i < count; i++)
        run_random(i);
    if (fuzz_done)
        fuzz_done(count);
    fprintf(stderr, "%d files\n", files);
    return files > 0 ? 0 : 1;
}
