/* The main of test programs that have none. */
#include "with_cmocka.h"

int main(void)
{
    setenv("CECL_DEVICE", "host", 0);
    return tests_run(NULL, NULL);
}
