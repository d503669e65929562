/* Stands for libFuzzer in ordinary builds: gives the fuzzer each file of the folders named, once. */
#include <dirent.h>
#include <unistd.h>

#include "input.h"

#define MOST ((size_t)1 << 16) /* the most bytes of a file */

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
    fprintf(stderr, "%s\n", name); /* the last line names the file that ended the run */
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
    alarm(115);
    LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++)
        files += run_folder(argv[i]);
    fprintf(stderr, "%d files\n", files);
    return files > 0 ? 0 : 1;
}
