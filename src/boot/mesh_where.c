/* Which rank is on which host. */
#include "boot/mesh_internal.h"

bool cecl_mesh_spans_hosts(const struct cecl_mesh *mesh)
{
    return mesh && mesh->hosts;
}

bool cecl_mesh_is_away(const struct cecl_mesh *mesh, int rank)
{
    return mesh && mesh->hosts && mesh->hosts->host[rank] != mesh->hosts->host[mesh->rank];
}

int cecl_mesh_leader(const struct cecl_mesh *mesh)
{
    return mesh->hosts ? mesh->hosts->leader : 0;
}

struct cecl_address cecl_mesh_address(const struct cecl_mesh *mesh)
{
    return mesh->at;
}
