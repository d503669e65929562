/* Two libraries that test_net_nccl must refuse: one has a single function of NCCL's; one says that it is cecl's own in
 * NCCL's place (IN_PLACE). */
#ifdef IN_PLACE
extern const char cecl_in_place_of_nccl;
const char cecl_in_place_of_nccl = 1;
#else
int ncclGetVersion(int *version);
int ncclGetVersion(int *version)
{
    *version = 22803;
    return 0;
}
#endif
