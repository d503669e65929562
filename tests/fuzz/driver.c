/* Replaces libFuzzer in ordinary builds: runs the fuzzer once with each file of the given
 * folders. */
#include <dirent.h>
#include <unistd.h>

#include "input.h"

#define MOST ((size_t)1 << 16) /* most bytes of a file */

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
    /* flushed, so that the last line names the file that ended the run */
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

int main(int argc, char **argv)
{
    int files = 0;
    alarm(280);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        files += run_folder(argv[i]);
    fprintf(stderr, "%d files\n", files);
    return files > 0 ? 0 : 1;
}
