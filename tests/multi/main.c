/* The main of multi-rank tests that have none. */
#include "multi.h"

int main(int argc, char **argv)
{
    return multi_main(argc, argv);
}
