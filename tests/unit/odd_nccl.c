/* Two libraries that test_net_nccl must refuse: one has only one of NCCL's functions; the other (IN_PLACE)
 * says that it is cecl's library, loaded instead of NCCL. */
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
