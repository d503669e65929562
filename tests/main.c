/* The main of test programs that have none. */
#include "with_cmocka.h"

int main(void)
{
    return tests_run(NULL, NULL);
}
