/* Which communicator of a process has a trial. */
#include "../with_cmocka.h"

#include "nccl/trial_reservation.h"

enum { A = 1, B = 3 };
#define IDLE CECL_RESERVATION_IDLE_NS

TEST(only_one_communicator_has_it)
{
    struct cecl_reservation its = {0};
    assert_true(cecl_reservation_take(&its, A, 100));
    assert_true(cecl_reservation_take(&its, A, 100)); /* another rank of this process */
    assert_false(cecl_reservation_take(&its, B, 101));
    cecl_reservation_leave(&its, A);
    assert_false(cecl_reservation_take(&its, B, 102));
    cecl_reservation_leave(&its, A);
    assert_true(cecl_reservation_take(&its, B, 103));
    assert_false(cecl_reservation_take(&its, A, 104));
}

TEST(one_that_makes_no_more_calls_loses_it)
{
    struct cecl_reservation its = {0};
    assert_true(cecl_reservation_take(&its, A, 100));
    cecl_reservation_use(&its, A, 200);
    assert_false(cecl_reservation_take(&its, B, 199 + IDLE));
    assert_true(cecl_reservation_take(&its, B, 200 + IDLE));
    cecl_reservation_use(&its, A, 300 + IDLE); /* A goes on */
    cecl_reservation_leave(&its, A);
    assert_false(cecl_reservation_take(&its, A, 301 + IDLE));
    cecl_reservation_leave(&its, B);
    assert_true(cecl_reservation_take(&its, A, 302 + IDLE));
}
