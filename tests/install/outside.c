/* A program outside cecl's tree: one rank on the host device runs an all-gather alone. */
#include <cecl/cecl_device.h>
#include <stdio.h>

int main(void)
{
    ceclComm_t comm;
    int version = 0, *buffer = NULL;
    const int sent = 42;
    if (ceclGetVersion(&version) != ceclSuccess || version != CECL_VERSION ||
        ceclCommInitAll(&comm, 1, NULL) != ceclSuccess ||
        ceclMemAlloc(comm, (void **)&buffer, sizeof(*buffer)) != ceclSuccess ||
        ceclAllGather(&sent, buffer, 1, ceclInt, comm, 0) != ceclSuccess ||
        ceclStreamSynchronize(comm, 0) != ceclSuccess || *buffer != sent) {
        fprintf(stderr, "cecl %d: %s\n", version, ceclGetLastError(NULL));
        return 1;
    }
    ceclDeviceComm_t dc;
    if (ceclCommGetDeviceComm(comm, &dc) != ceclSuccess || !ceclBarrierBlock(dc, 0) ||
        ceclPeerPointer(dc, buffer, 0) != buffer)
        return 1;
    printf("cecl %d works from outside\n", version);
    return ceclCommDestroy(comm) != ceclSuccess;
}
