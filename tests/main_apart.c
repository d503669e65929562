/* The main of test programs that mostly wait (named in CMakeLists.txt). */
#include "with_cmocka.h"

int main(void)
{
    setenv("CECL_DEVICE", "host", 0);
    return tests_run_apart();
}
