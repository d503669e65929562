/* The main of test programs that mostly wait (CMakeLists.txt names them). */
#include "with_cmocka.h"

int main(void)
{
    setenv("CECL_DEVICE", "host", 0);
    return tests_run_apart();
}
